# SPDX-License-Identifier: Apache-2.0
"""One error message for a framework that is not installed.

``_hvd.torch``, ``_hvd.tensorflow`` and ``_hvd.keras`` call need() first, so that an import of
``horovod.torch`` or one of its modules raises this message and not an error from within our code.
"""

import importlib
import sys

_WORDS = {  # module: (what it is called, the oldest that works, what pip installs)
    "torch": ("PyTorch", "1.13", "torch"),
    "tensorflow": ("TensorFlow", "2.12", "tensorflow"),
    "keras": ("Keras", "2.12", "keras"),
}
replaced = {}  # {"keras": "tf_keras"} where a program for TensorFlow 1 runs (compat/tf1.py)


def need(framework, asker):
    """Imports the module of this name for asker ("horovod.torch"). Errors inside of it are passed on."""
    framework = replaced.get(framework, framework)
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
