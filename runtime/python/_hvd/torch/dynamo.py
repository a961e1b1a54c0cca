# SPDX-License-Identifier: Apache-2.0
"""Makes this package opaque to torch.compile().

The compiler (dynamo) reads the bytecode of each Python function that runs inside of a compiled region,
also of those that C++ calls: DDP broadcasts the buffers of BatchNorm by our process group. Our functions
call the runtime, which it cannot trace, so they must run as they are. Its rules are set when it is
imported; importing it here would add a second to each start.
"""

import importlib.util
import sys

_RULES = "torch._dynamo.trace_rules"


def _hide(rules):
    if hasattr(rules, "add"):
        rules.add("_hvd")


class _Finder:
    """Finds the module of the rules once, as others would, and adds ours when it has been executed."""

    def find_spec(self, name, path=None, target=None):
        if name != _RULES or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _hide(module)

        spec.loader.exec_module = exec_module
        return spec


def hide_from_dynamo():
    """For the import of _hvd.torch."""
    if _RULES in sys.modules:
        _hide(sys.modules[_RULES])
    else:
        sys.meta_path.insert(0, _Finder())
