# SPDX-License-Identifier: Apache-2.0
"""AIACC Perseus' names over Ringmaster's runtime; the code is in ``_hvd``.

``perseus.torch.horovod`` is ``horovod.torch``, and so are ``perseus.tensorflow.horovod``,
``perseus.keras.horovod`` and all modules below them: the same objects, not copies, so there is one state,
and a function that is replaced in one is replaced in both. The build writes their type stubs.
"""

from _hvd import __version__
from _hvd.perseus import install

__all__ = ["__version__"]

install()
