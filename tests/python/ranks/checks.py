# SPDX-License-Identifier: Apache-2.0
"""For scripts that all ranks of a job run: collects checks and reports them to the test.

A check is a function marked with @check; all ranks run all of them in order of definition. The results are
written to $CHECKS_DIR/RANK.json as {name: error or null}. Scripts that run in the same processes
(together.py) add to one such file, with their names before those of their checks.
"""

import json
import os
import signal
import sys
import threading
import traceback

_checks = []
_said = {}
_script = []
running = ""  # the name of the check that runs


def check(function):
    _checks.append(function)
    return function


def check_if(condition):
    """@check where this holds, on all ranks alike."""
    return check if condition else lambda function: function


def expect_error(types, words, function, *args, **kwargs):
    """function must raise one of types with all words in its text; returns the text."""
    try:
        function(*args, **kwargs)
    except types as e:
        missing = [w for w in words if w.lower() not in str(e).lower()]
        assert not missing, f"{type(e).__name__}: {e!s:.600}\nlacks {missing}"
        return str(e)
    raise AssertionError(f"no {types} was raised")


def interrupted(function, *args):
    """function must be ended by the KeyboardInterrupt of a signal, which is armed inside of the call."""

    def ring(signum, frame):
        raise KeyboardInterrupt

    def call():
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            function(*args)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    signal.signal(signal.SIGALRM, ring)
    expect_error(KeyboardInterrupt, [], call)


def in_threads(n, work):
    """Runs work(0) to work(n - 1), each in a thread of its own; each must succeed within two minutes."""
    wrong = []

    def run(k):
        try:
            work(k)
        except Exception as e:
            wrong.append(e)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive(), "a thread still waits"
    assert not wrong, wrong


class Calls:
    """Of functions of _native, in the order of calls: (name, arguments)."""

    def __init__(self, *names):
        self.names, self.made, self.real = names, [], {}

    def __enter__(self):
        from _hvd import _native

        self.native = _native
        for name in self.names:
            self.real[name] = getattr(_native, name)

            def call(*args, name=name):
                self.made.append((name, args))
                return self.real[name](*args)

            setattr(_native, name, call)
        return self

    def __exit__(self, *_):
        for name, function in self.real.items():
            setattr(self.native, name, function)

    def of(self, name):
        return [args for n, args in self.made if n == name]

    def count(self, name):
        return len(self.of(name))


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def same_numbers(tensor, expected, tolerance=0.0):
    """A torch.Tensor against numpy or a list: shape and values."""
    import numpy as np

    got, expected = tensor.double().numpy(), np.asarray(expected, dtype=np.float64)
    assert got.shape == expected.shape, f"shape {got.shape}, not {expected.shape}"
    wrong = np.abs(got - expected) > tolerance
    assert not wrong.any(), f"{int(wrong.sum())} wrong, first {got[wrong][:3]} not {expected[wrong][:3]}"


def begin(script):
    """What comes now are the checks of this script."""
    _checks.clear()
    _script[:] = [script]


def main(rank):
    """Runs the checks; exits 0 when this rank's were all good."""
    global running
    good = True
    path = os.path.join(os.environ["CHECKS_DIR"], f"{rank}.json")
    for function in _checks:
        running = function.__name__
        name = ": ".join([*_script, running])
        try:
            function()
            _said[name] = None
        except Exception:
            _said[name] = traceback.format_exc()
            good = False
        with open(path + ".new", "w") as f:
            json.dump(_said, f)
        os.replace(path + ".new", path)
    sys.exit(0 if good else 1)
