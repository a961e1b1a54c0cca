# SPDX-License-Identifier: Apache-2.0
"""Collectives on torch tensors, by Horovod's name for this module; there is no MPI in it.

tensors.py    a tensor is an address, a shape and a dtype
submit.py     *_async functions, synchronize(), join(), barrier()
registered.py memory that is registered with NCCL
autograd.py   functions that wait, and their gradients
"""

from _hvd.torch.autograd import *
from _hvd.torch.autograd import __all__ as _waiting
from _hvd.torch.registered import *
from _hvd.torch.registered import __all__ as _registered
from _hvd.torch.submit import *
from _hvd.torch.submit import __all__ as _begun
from _hvd.torch.submit import submit_allreduce

__all__ = sorted([*_begun, *_registered, *_waiting])
