# SPDX-License-Identifier: Apache-2.0
"""The base of this folder's cases: one test per public symbol, on two ranks.

A case is a function marked @symbol(names of what it tests). The same cases run twice:

    under the original Horovod   recording: what it returns and raises goes to horovod-0.28.1-results.json
    under this project's         checking: the same must come out

so a case compares with numpy (t.equal, in both runs), or with the original (t.same, t.fails, t.warns), or,
where the original is known to be wrong, with the right result (t.fixed). Cases of names that only this
project has are marked ours=True.

core.py runs them and checks that a case calls what it is registered for.
"""

import importlib.util
import warnings

import horovod.torch as hvd
import numpy as np
import torch
from core import OURS, RANK, BaseCase, Lacking, alike, short, symbols_of, tidy

__all__ = ["OURS", "RANK", "Case", "hvd", "symbol", "torch"]

symbol = symbols_of("horovod.torch")


def plain(value):
    """A value as JSON has it: tensors with their dtype and shape, the rest by its own type."""
    if isinstance(value, torch.Tensor):
        if value.is_sparse:
            return {"sparse": plain(value.to_dense())}
        flat = value.detach().reshape(-1)
        numbers = flat.to(torch.float64).tolist() if value.is_floating_point() else flat.tolist()
        kind = str(value.dtype).replace("torch.", "")
        return {"tensor": kind, "shape": list(value.shape), "is": [short(n) for n in numbers]}
    if isinstance(value, tuple):
        return {"tuple": [plain(v) for v in value]}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {"dict": [[plain(k), plain(v)] for k, v in value.items()]}
    if isinstance(value, set):
        return {"set": sorted(value)}
    if isinstance(value, float):
        return short(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return {"a": type(value).__name__}


class Case(BaseCase):
    """The ways to compare."""

    def equal(self, got, expected, tolerance=0.0):
        """Against numpy or a list, shape and values."""
        got = got.detach().to(torch.float64).numpy() if isinstance(got, torch.Tensor) else np.asarray(got)
        expected = expected.detach() if isinstance(expected, torch.Tensor) else expected
        self.equal_numbers(got, expected, tolerance)

    def same(self, key, value):
        """As the original gives it: types, dtypes, shapes, values."""
        value = plain(value)
        wanted = self.keep(key, value)
        assert alike(value, wanted), f"{key}: {value} is not the original's {wanted}"

    def fails(self, key, words, function, *args, instead=None, **kwargs):
        """Raises as the original does: an exception of that type, with these words in both texts.

        instead: the exception that is raised here on purpose, where the original's misleads.
        """
        try:
            value = function(*args, **kwargs)
        except Exception as e:
            text = str(e)
            missing = [w for w in words if w.lower() not in text.lower()]
            assert not missing, f"{key}: {type(e).__name__}: {text[:600]} lacks {missing}"
            kinds = [c.__name__ for c in type(e).__mro__]
            wanted = self.keep(key, {"raises": kinds[0], "text": tidy(text)})
            right = instead.__name__ if OURS and instead else wanted["raises"]
            assert right in kinds, f"{key}: raises {kinds[0]}: {text}; not {right}"
            return
        raise AssertionError(f"{key}: nothing was raised, it returned {value!r:.200}")

    def warns(self, key, function, *args, **kwargs):
        """Warns as the original does, category and text; returns what the function does."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = function(*args, **kwargs)
        texts = [[w.category.__name__, str(w.message)] for w in caught]
        texts = [
            t for t in texts if "Parameter `" in t[1] or "skip_synchronize" in t[1]
        ]  # less torch's own
        wanted = self.keep(key, texts)
        assert texts == wanted, f"{key}: {texts} are not the original's warnings {wanted}"
        return value

    def fixed(self, key, reason, function, right):
        """The original is wrong here, for this reason; `right` is right (a value, as same() has it)."""
        try:
            value = plain(function())
        except Exception as e:
            if OURS:
                raise
            value = {"raises": type(e).__name__, "text": tidy(str(e))}
        right = plain(right)
        if OURS:
            assert alike(value, right), f"{key}: {value} is not {right} ({reason})"
        else:
            assert not alike(value, right), f"{key}: the original does it right, so this is no fix"
            value = {"fixed": reason, "original": value}
        self.keep(key, value)

    def needs(self, module):
        """Ends the case, well, where an optional module is not installed, as beside the newest torch."""
        if importlib.util.find_spec(module) is None:
            raise Lacking(module)

    def ended(self):
        unsaid = sorted(set(self.recorded) - set(self.said)) if OURS else None
        assert not unsaid, f"recorded of the original, and not said here: {unsaid}"

    def level(self):
        """The original names what has no name by the number of its handle: after calls that only one
        rank makes the numbers differ, and what follows would wait forever. Counts up to the higher."""
        if OURS:
            return
        alone = [hvd.add_process_set([r]) for r in range(hvd.size())]
        at = hvd.allreduce_async(torch.zeros(1), name="level")
        hvd.synchronize(at)
        top = int(hvd.allreduce(torch.tensor([at]), op=hvd.Max, name="top").item())
        for i in range(top - at):
            hvd.allreduce(torch.zeros(1), name=f"level.{i}", process_set=alone[hvd.rank()])
        for each in alone:
            hvd.remove_process_set(each)
