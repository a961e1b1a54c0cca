# SPDX-License-Identifier: Apache-2.0
"""A sentence for ``0.1 * hvd.size``, where hvd.size() is meant. Called by ending.py for uncaught errors.

Python's own message names a function, but not which: "unsupported operand type(s) for *: 'float' and
'function'". A comparison such as ``hvd.rank == 0`` raises nothing, and gets no sentence.
"""

import linecache
import re
import types

from _hvd.libraries import is_library

_NAMES = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
_USE = re.compile(rf"\b(\w+(?:\.\w+)*)\.({'|'.join(_NAMES)})\b(?!\s*\()")


def sentence_about(error):
    """Returns "hvd.size is a function: write hvd.size()", or None if the line has no such name."""
    if not isinstance(error, (TypeError, ValueError)) or "function" not in str(error):
        return None
    own, trace = None, error.__traceback__
    while trace:
        if not is_library(trace.tb_frame.f_code.co_filename):
            own = trace
        trace = trace.tb_next
    if own is None:
        return None
    frame = own.tb_frame
    line = linecache.getline(frame.f_code.co_filename, own.tb_lineno, frame.f_globals)
    for module, name in _USE.findall(line):
        if getattr(_value(f"{module}.{name}", frame), "__module__", None) == "_hvd.basics":
            return f"{module}.{name} is a function: write {module}.{name}()"
    return None


def _value(path, frame):
    """What a dotted name is in a frame; None if it is nothing there."""
    first, *rest = path.split(".")
    value = frame.f_locals.get(first, frame.f_globals.get(first))
    for name in rest:
        value = getattr(value, name, None) if isinstance(value, types.ModuleType) else None
    return value
