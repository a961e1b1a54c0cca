# SPDX-License-Identifier: Apache-2.0
"""Turns off XLA for models on TensorFlow with a distributed optimizer, and warns once."""

import functools
import warnings

from _hvd import basics
from _hvd.keras.settings import is_distributed


def turn_off_xla(model_class):
    """Patches model_class: models with a distributed optimizer get jit_compile=False, because XLA cannot
    compile our operations. Calling it again has no effect."""
    owner = next((c for c in model_class.__mro__ if "jit_compile" in vars(c)), None)
    plain = vars(owner)["jit_compile"] if owner is not None else None
    if not isinstance(plain, property) or getattr(owner, "_hvd_jit_compile", False):
        return

    def jit_compile(self):
        value = plain.fget(self)
        if value and is_distributed(getattr(self, "optimizer", None)):
            self._jit_compile = value = False
            _warn_no_xla()
        return value

    owner.jit_compile = property(jit_compile, plain.fset, plain.fdel, plain.__doc__)
    owner._hvd_jit_compile = True


@functools.lru_cache(maxsize=None)
def _warn_no_xla():
    if basics.is_initialized() and basics.rank() != 0:
        return
    warnings.warn(
        "horovod: the model is trained without XLA (jit_compile=False), because TensorFlow's XLA cannot "
        "compile the exchange of gradients",
        stacklevel=5,
    )
