# SPDX-License-Identifier: Apache-2.0
"""Programs for frameworks of former years, on today's: tf1.py."""

import os
import runpy

_HERE = os.path.dirname(__file__)
_COMMAND = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "horovod", "compat", "tf1.py")
# Files of the frames that start a program or stand between two of its own. Tracebacks are without them.
HIDDEN_FILES = frozenset(
    {
        _COMMAND,
        "<frozen runpy>",
        runpy.__file__,
        *(os.path.join(_HERE, f) for f in ("tf1.py", "imports.py")),
    }
)
