# SPDX-License-Identifier: Apache-2.0
"""``horovod.common.basics.HorovodBasics``: the functions of ``_hvd.basics`` as methods.

Horovod's modules hold one as ``_basics``. Here it has no state of its own: all of them are the same.
"""

from _hvd import basics


class HorovodBasics:
    """pkg_path and args name Horovod's library file; here one library serves, so they are not used."""

    Average = basics.Average
    Sum = basics.Sum
    Adasum = basics.Adasum
    Min = basics.Min
    Max = basics.Max
    Product = basics.Product

    def __init__(self, pkg_path=None, *args):
        del pkg_path, args


for _name in basics.__all__:
    if callable(getattr(basics, _name)):
        setattr(HorovodBasics, _name, staticmethod(getattr(basics, _name)))
del _name
