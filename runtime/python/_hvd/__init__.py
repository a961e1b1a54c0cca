# SPDX-License-Identifier: Apache-2.0
"""All code of Ringmaster's Python side; ``horovod`` and ``perseus`` are thin names over it.

Nothing third-party is imported here. Frameworks are imported only by ``_hvd.torch`` and
``_hvd.tensorflow``.
"""

from _hvd._version import __version__
from _hvd.conflict import refuse_mixed_install

__all__ = ["__version__"]

refuse_mixed_install()
