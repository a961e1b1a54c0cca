# SPDX-License-Identifier: Apache-2.0
"""``python -m horovod.compat.tf1 SCRIPT [ARGUMENT...]``: a program for TensorFlow 1 on TensorFlow 2.

    python -m horovod.compat.tf1 train.py --steps 100
        |  here: __main__, sys.argv and sys.path[0] of the program
        v
    train.py, and the program's other modules     libraries: tensorflow, keras, horovod ...
        |  import tensorflow                          |  import tensorflow
        v  imports.py: their own __import__           v
    names.py: tensorflow.compat.v1                tensorflow, as always

The program's tracebacks are without our lines: sys.excepthook leaves them out, and so does TensorFlow where
it shows in which lines an operation was made (names.py).
"""

import importlib.util
import os
import sys
import types
from importlib.machinery import SourceFileLoader

from _hvd import frameworks
from _hvd.compat import HIDDEN_FILES, imports

_USAGE = "usage: python -m horovod.compat.tf1 SCRIPT [ARGUMENT...], or: ... -m MODULE [ARGUMENT...]"


def main(arguments=None):
    """Runs the program that the command line names, and returns when it has ended."""
    words = sys.argv[1:] if arguments is None else arguments
    is_module = words[:1] == ["-m"]
    words = words[is_module:]
    if not words or words[0].startswith("-"):
        sys.exit(_USAGE)
    sys.excepthook = _without_ours(sys.excepthook)
    _use_keras_2()
    builtins_of_program = imports.install()
    code, names = _module(words[0]) if is_module else _script(words[0])
    sys.argv[:] = [names["__file__"] if is_module else words[0], *words[1:]]
    program = types.ModuleType("__main__")
    vars(program).update(names, __builtins__=builtins_of_program, __annotations__={})
    sys.modules["__main__"] = program
    exec(code, vars(program))


def _script(path):
    """(code, names of __main__) of a file; sys.path[0] becomes its folder."""
    file = os.path.abspath(path)
    try:
        with open(file, "rb") as f:
            source = f.read()
    except OSError as e:
        sys.exit(f"horovod.compat.tf1: cannot read the script {path}: {e.strerror}")
    code = compile(source, file, "exec", dont_inherit=True)
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(file))
    loader = SourceFileLoader("__main__", file)
    return code, {
        "__file__": file,
        "__loader__": loader,
        "__package__": None,
        "__spec__": None,
        "__cached__": None,
    }


def _module(name):
    """(code, names of __main__) of a module; sys.path[0] stays the working folder, as under python -m."""
    try:
        spec = importlib.util.find_spec(name)
        if spec and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(name + ".__main__")
    except ModuleNotFoundError as e:
        if not f"{name}.".startswith(f"{e.name}."):
            raise  # of a module that the package imports
        spec = None
    code = spec.loader.get_code(spec.name) if spec and spec.loader else None
    if code is None:
        sys.exit(f"horovod.compat.tf1: cannot run the module {name}: it is not found or has no __main__")
    return code, {
        "__file__": spec.origin,
        "__loader__": spec.loader,
        "__package__": spec.parent,
        "__spec__": spec,
        "__cached__": spec.cached,
    }


def _use_keras_2():
    """From TensorFlow 2.16 on, Keras 2 is the package tf_keras; this variable chooses it for tf.keras."""
    if not importlib.util.find_spec("tf_keras"):
        return
    if os.environ.setdefault("TF_USE_LEGACY_KERAS", "1") in ("1", "true", "True"):
        frameworks.replaced["keras"] = "tf_keras"  # as it does for horovod.keras


def _without_ours(previous):
    """An excepthook that calls the previous one with the program's frames only."""

    def excepthook(kind, value, trace):
        seen, chain = set(), [value]
        while chain:
            error = chain.pop()
            if error is not None and id(error) not in seen:
                seen.add(id(error))
                error.__traceback__ = _frames_of_program(error.__traceback__)
                chain += [error.__cause__, error.__context__]
        previous(kind, value, value.__traceback__)

    return excepthook


def _frames_of_program(trace):
    kept = []
    while trace:
        if trace.tb_frame.f_code.co_filename not in HIDDEN_FILES:
            kept.append(trace)
        trace = trace.tb_next
    rest = None
    for one in reversed(kept):
        one.tb_next = rest
        rest = one
    return rest
