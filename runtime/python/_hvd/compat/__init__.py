# SPDX-License-Identifier: Apache-2.0
"""Programs for other versions of a framework, or for its own ways, as they are: tf1.py, strategies.py."""

import os
import runpy

_HERE = os.path.dirname(__file__)
_COMMANDS = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "horovod", "compat")
# Files of the frames that start a program or stand between two of its own. Tracebacks are without them.
HIDDEN_FILES = frozenset(
    {
        "<frozen runpy>",
        runpy.__file__,
        *(os.path.join(_COMMANDS, f) for f in ("tf1.py", "strategies.py")),
        *(
            os.path.join(_HERE, f)
            for f in (
                "program.py",
                "tf1.py",
                "strategies.py",
                "coordinators.py",
                "keras_steps.py",
                "imports.py",
            )
        ),
    }
)
