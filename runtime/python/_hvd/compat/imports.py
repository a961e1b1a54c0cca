# SPDX-License-Identifier: Apache-2.0
"""Imports of the program itself, apart from those of libraries.

The import statement calls the __import__ of its module's __builtins__. Modules of the program get a copy
of the builtins with program_import() in it: __main__ by tf1.py, all that it imports by a finder. Libraries
have Python's own builtins, so nothing changes for them, and sys.modules has no entry of ours.

A module is the program's unless it belongs to a library (libraries.py), or pip has installed packages
beside it: "pip install --target" and PYTHONPATH make such folders anywhere.
"""

import builtins
import functools
import os
import sys
import types
from importlib.machinery import PathFinder, SourceFileLoader

from _hvd.compat import names
from _hvd.libraries import is_library

_builtins_of_program = dict(vars(builtins))
_ROOTS = ("tensorflow", "keras")


def install():
    """Returns the __builtins__ for __main__; modules of the program that are imported later have them."""
    _builtins_of_program["__import__"] = program_import
    sys.meta_path.insert(0, _Finder)
    return _builtins_of_program


def program_import(name, globals=None, locals=None, fromlist=(), level=0):
    """builtins.__import__ for the program: tensorflow and keras are those of TensorFlow 1."""
    tensorflow = sys.modules.get("tensorflow")
    if getattr(getattr(tensorflow, "__spec__", None), "_initializing", False):
        # it is being imported itself, and imports a module of the program: its own copy of six, for one
        return builtins.__import__(name, globals, locals, fromlist, level)
    if level == 0 and name.partition(".")[0] in _ROOTS:
        return names.find(name, fromlist or ())
    module = builtins.__import__(name, globals, locals, fromlist, level)
    if "tensorflow" in sys.modules:
        names.switch()  # horovod.tensorflow, for one, has imported it
    return module


class _Loader(SourceFileLoader):
    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__builtins__ = _builtins_of_program
        return module


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target)
        if spec and type(spec.loader) is SourceFileLoader and _is_of_program(spec):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
            return spec
        return None


def _is_of_program(spec):
    folder = os.path.dirname(spec.origin)
    for _ in range(spec.name.count(".") + (spec.submodule_search_locations is not None)):
        folder = os.path.dirname(folder)
    return not is_library(spec.origin) and not _has_installed(folder)


@functools.lru_cache(maxsize=None)
def _has_installed(folder):
    """Whether pip has installed packages in this folder of sys.path."""
    return any(name.endswith(".dist-info") for name in os.listdir(folder or "."))
