# SPDX-License-Identifier: Apache-2.0
"""Environment variables that Python code reads itself, with the runtime's grammar (core/knobs.h)."""

import os
import re

_MS = {"ms": 1, "m": 60000, "h": 3600000}


def match_of(name, pattern, fallback):
    """A variable's text split by the pattern. hvd.init() has checked it, if it was set before."""
    text = os.environ.get(name) or fallback
    match = re.fullmatch(pattern, text)
    if not match:
        raise ValueError(f'{name}="{text}" is not such as {fallback}')
    return match


def milliseconds_of(name, fallback):
    """A time of at least 1 ms, in seconds unless it ends with another unit: "90", "1.5m", "200ms"."""
    match = match_of(name, r"(\d+(?:\.\d+)?)(ms|s|m|h)?", fallback)
    return max(1, int(float(match[1]) * _MS.get(match[2], 1000)))
