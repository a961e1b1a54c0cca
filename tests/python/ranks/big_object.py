# SPDX-License-Identifier: Apache-2.0
"""An object of more than 2 GiB, which 32-bit lengths cannot tell; needs 12 GiB on two ranks."""

import horovod.torch as hvd
from checks import check, main

hvd.init()
R = hvd.rank()
LENGTH = 2**31 + 5


@check
def an_object_of_more_than_2_gib_is_broadcast():
    thing = bytearray(LENGTH) if R == 0 else None
    if R == 0:
        thing[-1] = 7
    thing = hvd.broadcast_object(thing, 0)
    assert (len(thing), thing[-1], thing[0]) == (LENGTH, 7, 0)


main(R)
