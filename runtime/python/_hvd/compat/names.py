# SPDX-License-Identifier: Apache-2.0
"""The modules tensorflow and keras as a program for TensorFlow 1 sees them.

Their names are those of tensorflow.compat.v1. A name of TensorFlow 1 that the installed version does not
have raises an AttributeError or an ImportError whose message says which version has it.
"""

import functools
import importlib
import sys
import types

from _hvd import frameworks
from _hvd.compat import HIDDEN_FILES

_KERAS_2 = ("tensorflow.layers", "tensorflow.nn.rnn_cell", "tensorflow.keras.estimator")
_KERAS_2_BACKEND = ("get_session", "set_session")


class Names(types.ModuleType):
    """A module with the names of another one, and messages about those that it lacks."""

    def __init__(self, path, source):
        super().__init__(path, source.__doc__)
        self.__dict__["_source"] = source

    def __getattr__(self, name):
        path = f"{self.__name__}.{name}"
        if name == "__all__":
            return [public for public in dir(self) if not public.startswith("_")]
        try:
            value = getattr(self._source, name)
        except AttributeError:
            error = AttributeError(absence(path) or f"module '{self.__name__}' has no attribute '{name}'")
            error.name = name  # without .obj, so that Python does not add a guess to the sentence
            raise error from None
        if isinstance(value, types.ModuleType) and any(_overlap(path, absent) for absent in _absences()):
            value = self.__dict__[name] = Names(path, value)
        return value

    def __dir__(self):
        return sorted({*dir(self._source), *vars(self)})


class ModeKeys:
    """tf.estimator.ModeKeys: the words that model functions without an Estimator use too."""

    TRAIN, EVAL, PREDICT = "train", "eval", "infer"


@functools.lru_cache(maxsize=None)
def switch():
    """Turns the behaviour of TensorFlow 2 off, once. Returns tensorflow as the program sees it."""
    real = frameworks.need("tensorflow", "horovod.compat.tf1")
    v1 = real.compat.v1
    before = v1.logging.get_verbosity()
    v1.logging.set_verbosity(v1.logging.ERROR)  # of a deprecation that the program has not asked for
    v1.disable_v2_behavior()
    v1.logging.set_verbosity(before)
    _hide_our_frames()
    seen = Names("tensorflow", v1)
    for name in ("__file__", "__path__", "__spec__", "__version__"):
        setattr(seen, name, getattr(real, name))
    seen.enable_eager_execution = _enable_eager_execution
    if not hasattr(v1, "estimator"):
        seen.estimator = Names("tensorflow.estimator", types.SimpleNamespace(ModeKeys=ModeKeys))
    seen.compat = Names("tensorflow.compat", real.compat)
    seen.compat.v1 = seen
    return seen


def _enable_eager_execution(config=None, device_policy=None, execution_mode=None):
    """tf.enable_eager_execution. TensorFlow 2 has a context since its import and refuses options for it."""
    from tensorflow.python.eager import context

    current = context.context()
    if not current._initialized:
        current._config = config or current._config
        current._device_policy = current._device_policy if device_policy is None else device_policy
    sys.modules["tensorflow"].compat.v1.enable_eager_execution(config, device_policy)
    if execution_mode is not None:
        current.execution_mode = execution_mode


def _hide_our_frames():
    """For this thread: TensorFlow's "Original stack trace" of an operation has the program's lines only."""
    from tensorflow.python.util import tf_stack

    class Hidden(tf_stack.StackTraceFilter):
        def get_filtered_filenames(self):
            return HIDDEN_FILES

    Hidden().__enter__()


def find(name, wanted):
    """What "import NAME" (wanted: ()) or "from NAME import WANTED..." of the program gets: a module.

    NAME is tensorflow, keras, or a module in one of them. Modules without a name in tensorflow.compat.v1,
    such as tensorflow.python.framework.ops, are the real ones.
    """
    root, *parts = name.split(".")
    top = switch() if root == "tensorflow" else switch().keras
    module = top
    for i, part in enumerate(parts):
        if not hasattr(module, part):
            path = ".".join([top.__name__, *parts[: i + 1]])
            if absence(path):
                raise ModuleNotFoundError(absence(path), name=name)
            module = importlib.import_module(name)
            break
        module = getattr(module, part)
    for one in wanted:
        if one != "*" and not hasattr(module, one):
            _import_below(name, module, one)
    return module if wanted else top


def _import_below(name, module, wanted):
    """For "from NAME import WANTED" where the module has no such name: a module below it, or an error."""
    text = absence(f"{getattr(module, '__name__', name)}.{wanted}")
    if text:
        raise ImportError(text, name=name)
    try:
        importlib.import_module(f"{name}.{wanted}")  # which the import statement finds in sys.modules
    except ModuleNotFoundError as e:
        if e.name != f"{name}.{wanted}":
            raise


def absence(path):
    """The sentence about a name of TensorFlow 1 that is not here, "tensorflow.contrib.slim", or None."""
    return next((text for absent, text in _absences().items() if _is_in(path, absent)), None)


@functools.lru_cache(maxsize=None)
def _absences():
    """{name: sentence} of what TensorFlow 1 has and this one has not: the name and all below it."""
    real = sys.modules["tensorflow"]
    here = f"this is TensorFlow {real.__version__}"
    found = {
        "tensorflow.contrib": f"tf.contrib: TensorFlow 1 has it, 2.x does not, and {here}; parts of it are "
        "in tf.layers, tf.nn.rnn_cell, tf.estimator and tf.glorot_uniform_initializer",
        "tensorflow.examples": f"tensorflow.examples: TensorFlow 1 has it, 2.x does not, and {here}; "
        "tf.keras.datasets.mnist.load_data() returns the images of input_data",
    }
    if not hasattr(real.compat.v1, "estimator"):
        found["tensorflow.estimator"] = (
            f"tf.estimator: TensorFlow up to 2.15 has it, and {here}; tf.train.MonitoredTrainingSession "
            "trains with hooks here"
        )
    if _keras_is_3(real):
        for path in (*_KERAS_2, *(f"tensorflow.keras.backend.{name}" for name in _KERAS_2_BACKEND)):
            found[path] = (
                f"{path.replace('tensorflow', 'tf')}: Keras 2 has it, and {here} with Keras 3; use "
                "TensorFlow up to 2.15, or install the package tf_keras of TensorFlow's version"
            )
    return found


def _keras_is_3(tensorflow):
    try:
        return getattr(tensorflow.keras, "__version__", "").startswith("3.")
    except ImportError:  # there is no Keras
        return False


def _is_in(path, parent):
    return path == parent or path.startswith(parent + ".")


def _overlap(path, other):
    return _is_in(path, other) or _is_in(other, path)
