# SPDX-License-Identifier: Apache-2.0
"""The base of this folder's cases: one test per public symbol of horovod.tensorflow and Keras.

They run on two ranks under each TensorFlow (test_parity.py) and compare with numpy, by Horovod's
documentation; those of recorded.py run under the original too and compare with it. The names, signatures
and defaults are the original's own. ../symbols/core.py runs the cases and checks that each calls what it is
registered for; a case of something that a TensorFlow does not have (an Estimator, Keras 2's old optimizers)
ends with t.needs(), and is tested when it passes under the other.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from core import OURS, RANK, BaseCase, Lacking, alike, short, symbols_of, tidy

R, N = RANK, 2
v1 = tf.compat.v1
symbol = symbols_of("horovod.tensorflow")

__all__ = ["Case", "N", "R", "hvd", "np", "symbol", "tf", "v1"]


def plain(value):
    """A value as JSON has it: tensors with their dtype and shape."""
    if isinstance(value, tf.IndexedSlices):
        return {"slices": plain(value.values), "at": plain(value.indices)}
    if tf.is_tensor(value) or isinstance(value, (tf.Variable, np.ndarray, np.generic)):
        array = np.asarray(
            tf.cast(value, tf.float64) if value.dtype in (tf.bfloat16, tf.float16) else value
        )
        name = tf.as_dtype(value.dtype).name
        return {
            "tensor": name,
            "shape": list(array.shape),
            "is": [short(n) for n in array.reshape(-1).tolist()],
        }
    if isinstance(value, (list, tuple)):
        return (
            [type(value).__name__, *map(plain, value)]
            if isinstance(value, list)
            else {"tuple": [*map(plain, value)]}
        )
    if isinstance(value, dict):
        return {"dict": [[plain(k), plain(v)] for k, v in value.items()]}
    if isinstance(value, set):
        return {"set": sorted(value)}
    return short(value) if isinstance(value, float) else value


class Case(BaseCase):
    """The ways to compare."""

    def same(self, key, value):
        """As the original gives it: types, dtypes, shapes, values."""
        self._compare(key, plain(value))

    def outcome(self, key, function, *args, instead=None, **kwargs):
        """The original's value, or an error of the kind it raises (instead: of this one, on purpose)."""
        try:
            value = plain(function(*args, **kwargs))
        except Exception as e:
            kinds = [c.__name__ for c in type(e).__mro__ if c is not object]
            value = {"raises": kinds, "text": tidy(str(e))}
        self._compare(key, value, instead)

    def _compare(self, key, value, instead=None):
        wanted = self.keep(key, value)
        if not OURS:
            return
        if isinstance(wanted, dict) and "raises" in wanted:
            right = isinstance(value, dict) and (instead or wanted["raises"][0]) in value.get("raises", ())
        else:
            right = alike(value, wanted)
        assert right, f"{key}: {value} is not the original's {wanted}"

    def ended(self):
        """Called when the case has not failed."""

    @staticmethod
    def equal(got, expected, tolerance=0.0, dtype=None):
        """Shape and values, and the dtype where one is given."""
        if dtype is not None:
            assert got.dtype == dtype, f"{got.dtype} is not {dtype}"
        array = np.asarray(tf.cast(got, tf.float64) if tf.is_tensor(got) else got, dtype=np.float64)
        BaseCase.equal_numbers(array, expected, tolerance)

    @staticmethod
    def fails(kind, words, function, *args, **kwargs):
        """Raises kind (or one of a tuple) with all words in its text."""
        try:
            value = function(*args, **kwargs)
        except kind as e:
            missing = [w for w in words if w.lower() not in str(e).lower()]
            assert not missing, f"{type(e).__name__}: {e!s:.600} lacks {missing}"
            return
        raise AssertionError(f"nothing was raised, it returned {value!r:.200}")

    @staticmethod
    def needs(condition):
        """Ends the case, well, where what it is about is not in this TensorFlow."""
        if not condition:
            raise Lacking


def session_run(build):
    """The value of what build() makes in a graph of TensorFlow 1."""
    with tf.Graph().as_default(), v1.Session() as session:
        return session.run(build())
