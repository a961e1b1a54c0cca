# SPDX-License-Identifier: Apache-2.0
"""The finder that answers ``import perseus.FRAMEWORK.horovod.X`` with the module ``horovod.FRAMEWORK.X``.

It stands before Python's own finders, which would look below the parent's ``__path__``, that is in
``horovod``, and load the same file a second time as another module.
"""

import importlib.util
import re
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec

_OURS = re.compile(r"perseus\.(torch|tensorflow|keras)\.horovod(\..+)?")


class SameModule(MetaPathFinder, Loader):
    """Finder and loader in one; both are stateless."""

    @staticmethod
    def _real(name):
        m = _OURS.fullmatch(name)
        return f"horovod.{m[1]}{m[2] or ''}" if m else None

    def find_spec(self, name, path=None, target=None):
        real = self._real(name)
        found = importlib.util.find_spec(real) if real else None
        if found is None:
            return None
        spec = ModuleSpec(name, self, origin=found.origin)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec

    def create_module(self, spec):
        module = importlib.import_module(self._real(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module):
        # It has run as what it is; only what the import system has just written into it is put back.
        module.__spec__ = module.__spec__.loader_state


def install():
    """Once a process: this module is imported once."""
    sys.meta_path.insert(0, SameModule())
