# SPDX-License-Identifier: Apache-2.0
"""Says in one sentence what is missing where a framework is not installed.

``_hvd.torch``, ``_hvd.tensorflow`` and ``_hvd.keras`` begin with a call, so that whoever imports
``horovod.torch`` or one of its modules gets the sentence and not a line from the middle of ours.
"""

import importlib
import sys

_WORDS = {  # module: (what it is called, the oldest that works, what pip installs)
    "torch": ("PyTorch", "1.13", "torch"),
    "tensorflow": ("TensorFlow", "2.12", "tensorflow"),
    "keras": ("Keras", "2.12", "keras"),
}


def need(framework, asker):
    """The module of this name, for asker ("horovod.torch"). An error inside of it goes through as it is."""
    try:
        return importlib.import_module(framework)
    except ModuleNotFoundError as e:
        if e.name != framework:
            raise
        title, oldest, package = _WORDS[framework]
        raise ModuleNotFoundError(
            f"{asker} needs {title} {oldest} or later, which {sys.executable} does not find: "
            f"pip install {package} (horovod itself is installed)",
            name=framework,
        ) from None
