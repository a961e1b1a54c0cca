# SPDX-License-Identifier: Apache-2.0
"""ShardedState: a TorchState of which each rank has parts of its own, as of a sharded optimizer."""

from _hvd.sharded import Sharded
from _hvd.torch.elastic.state import TorchState


class ShardedState(Sharded, TorchState):
    """A TorchState, and parts that each rank has for itself; a commit copies them to another host.

    save_parts(): this rank's parts, {name: object}; a name is an int or a str that no other rank has.
    Called at each commit. Tensors in them are copied, and anything else is pickled.

    load_parts({name: object}): takes the parts that this rank now has. Called by sync() on all ranks, after
    a loss and whenever ranks have come or gone: it may run collectives, and the names may change here.
    Their tensors are in host memory. A rank keeps its parts if it can. With fewer ranks some get two,
    with more some get none.

    All other arguments are TorchState's, and are equal on all ranks.
    """

    def __init__(self, save_parts, load_parts, model=None, optimizer=None, **kwargs):
        self._init_parts(save_parts, load_parts)
        super().__init__(model, optimizer, **kwargs)
