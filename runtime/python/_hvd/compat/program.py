# SPDX-License-Identifier: Apache-2.0
"""Runs a program in this process as ``python SCRIPT`` and ``python -m MODULE`` do: tf1.py, strategies.py.

__main__, sys.argv, sys.path[0], exit codes and tracebacks are those of the program alone.
"""

import importlib.util
import os
import sys
import types
from importlib.machinery import SourceFileLoader

from _hvd.compat import HIDDEN_FILES


class Command:
    """The words after ``python -m horovod.compat.NAME``: a script, or -m and a module; its arguments."""

    def __init__(self, name, arguments=None):
        self.name = name
        words = sys.argv[1:] if arguments is None else arguments
        self.is_module = words[:1] == ["-m"]
        self.words = words[self.is_module :]
        if not self.words or self.words[0].startswith("-"):
            sys.exit(f"usage: python -m {name} SCRIPT [ARGUMENT...], or: ... -m MODULE [ARGUMENT...]")

    def run(self, builtins_of_program):
        """Runs the program and returns when it has ended."""
        sys.excepthook = _without_ours(sys.excepthook)
        what, *others = self.words
        code, names = _module(what, self.name) if self.is_module else _script(what, self.name)
        sys.argv[:] = [names["__file__"] if self.is_module else what, *others]
        program = types.ModuleType("__main__")
        vars(program).update(names, __builtins__=builtins_of_program, __annotations__={})
        sys.modules["__main__"] = program
        exec(code, vars(program))


def _script(path, asker):
    """(code, names of __main__) of a file; sys.path[0] becomes its folder."""
    file = os.path.abspath(path)
    try:
        with open(file, "rb") as f:
            source = f.read()
    except OSError as e:
        sys.exit(f"{asker}: cannot read the script {path}: {e.strerror}")
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


def _module(name, asker):
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
        sys.exit(f"{asker}: cannot run the module {name}: it is not found or has no __main__")
    return code, {
        "__file__": spec.origin,
        "__loader__": spec.loader,
        "__package__": spec.parent,
        "__spec__": spec,
        "__cached__": spec.cached,
    }


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
