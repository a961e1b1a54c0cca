# SPDX-License-Identifier: Apache-2.0
"""The base of the cases of ../symbols and ../symbols_tf, for every framework.

A case is a function marked @symbol(names of what it tests), run on two ranks. The interpreter's profile
hook records the functions that ran, and a case whose symbol did not run fails (see `called`).
"""

import contextlib
import functools
import importlib
import inspect
import json
import os
import re
import sys
import threading
import time
import traceback

import horovod
import numpy as np

OURS = "ringmaster" in horovod.__version__
RANK = int(os.environ.get("HOROVOD_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
CASES = []


def symbols_of(package):
    """The decorator that marks a case; names without a module are of that package."""

    def symbol(*names, ours=False):
        def mark(function):
            full = [name if name.startswith("horovod") else f"{package}.{name}" for name in names]
            if CASES and CASES[-1][0] is function:  # a second line of marks
                CASES[-1][1][:0] = full
            else:
                CASES.append((function, full, ours))
            return function

        return mark

    return symbol


class Lacking(Exception):
    """What is optional is not there, so that a case cannot be."""


def tidy(text):
    """An error's text for the record: one line, nothing of this machine or this run."""
    text = text.replace(os.path.dirname(os.path.abspath(__file__)), "HERE")
    return re.sub(r"\d{8,}", "N", " ".join(text.split()))[:200]


def short(number):
    """Floats to seven digits, which is what a float32 has."""
    return float(f"{number:.7g}") if isinstance(number, float) else number


def alike(a, b):
    """Equal, but floats only to the tolerance of float32 sums in another order."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= 1e-7 + 2e-5 * abs(b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(alike(x, y) for x, y in zip(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


def resolve(path):
    module, name = path.rsplit(".", 1)
    return getattr(importlib.import_module(module), name)


def codes_of(value):
    """The code objects or builtins of which one must run for a symbol to have been called; empty for
    what has no code (a number, an exception without methods)."""
    if inspect.isclass(value):
        found = set()
        for holder in value.__mro__:
            if holder.__module__.split(".")[0] in ("horovod", "_hvd"):
                for member in vars(holder).values():
                    found |= codes_of(getattr(member, "__func__", getattr(member, "fget", member)))
        return found
    if isinstance(value, functools.partial):
        return codes_of(value.func)
    value = inspect.unwrap(getattr(value, "__func__", value)) if callable(value) else value
    if hasattr(value, "__code__"):
        return {value.__code__}
    return {value} if inspect.isbuiltin(value) else set()


@contextlib.contextmanager
def called():
    """Collects what runs, in threads that start meanwhile too: code objects and builtins."""
    seen = set()

    def hook(frame, event, arg):
        if event == "call":
            seen.add(frame.f_code)
        elif event == "c_call":
            with contextlib.suppress(TypeError):
                seen.add(arg)

    threading.setprofile(hook)
    sys.setprofile(hook)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


class BaseCase:
    """What a case gets: its record of the original, and what it says itself."""

    def __init__(self, recorded):
        self.recorded = recorded  # of this rank and case
        self.said = {}

    def keep(self, key, value):
        """Notes what was said; returns what the original said."""
        assert key not in self.said, f"{key} is said twice"
        self.said[key] = value
        if os.environ.get("SYMBOLS_VERBOSE"):  # which comparison is the one that never ends?
            print(f"{RANK}: {key}", file=sys.stderr, flush=True)
        assert not OURS or key in self.recorded, f"{key} is not recorded: run tests/python/record.sh"
        return self.recorded[key] if OURS else value

    @staticmethod
    def equal_numbers(got, expected, tolerance):
        """Arrays, by shape and values."""
        expected = np.asarray(expected, dtype=np.float64)
        assert got.shape == expected.shape, f"shape {got.shape}, not {expected.shape}"
        wrong = np.abs(got - expected) > tolerance
        assert not wrong.any(), f"{got.tolist()} is not {expected.tolist()}"


def run_case(case, function, names):
    """(error or None, is what it needs lacking)"""
    try:
        with called() if OURS else contextlib.nullcontext() as seen:
            function(case)
        if OURS:
            for name in names:
                codes = codes_of(resolve(name))
                assert not codes or codes & seen, f"{name}: the case has not called it"
        case.ended()
        return None, False
    except Lacking:
        return None, True
    except Exception:
        return traceback.format_exc(), False


def run_all(kind, results, report):
    """Runs the cases, each a kind(what the file results has of it), and writes the report after each; a case that
    never ends is in it as such. Returns whether any failed."""
    recorded = json.loads(results.read_text()) if OURS else {}
    path = os.path.join(os.environ["CHECKS_DIR"], f"{RANK}.json")
    for function, names, ours in CASES:
        if ours and not OURS:
            continue
        name = function.__name__
        assert name not in report["cases"], f"two cases are called {name}"
        said = report["cases"][name] = {"symbols": names, "said": {}, "error": "did not end"}
        write(path, report)
        began = time.monotonic()
        case = kind(recorded.get(name, {}).get(str(RANK), {}))
        said["error"], said["lacking"] = run_case(case, function, names)
        said.update(said=case.said, seconds=round(time.monotonic() - began, 3))
    write(path, report)
    return any(case["error"] for case in report["cases"].values())


def write(path, content):
    with open(path + ".new", "w") as f:
        json.dump(content, f)
    os.replace(path + ".new", path)
