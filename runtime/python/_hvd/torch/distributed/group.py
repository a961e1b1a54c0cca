# SPDX-License-Identifier: Apache-2.0
"""HvdProcessGroup: the collectives of torch.distributed as operations of the runtime.

A group is a process set of the runtime. Ranks in torch's arguments are places in the group, those of
the runtime are global. Every collective is submitted at once and returns a Work.

Names. "torch.KIND.DTYPE.NUMEL.N": ranks of a group call its collectives in one order, so each rank counts
those of a kind, dtype and size, modulo NAMES. So every step has the same names. Groups of one process set
have different prefixes. The stall report shows a rank that calls another collective than the other ranks;
with TORCH_DISTRIBUTED_DEBUG=DETAIL names contain the order only, and the runtime's error shows how the
tensors differ.

Memory. Contiguous tensors are used in place, and lists of tensors too when they are neighbours (FSDP's
chunks); others are copied. Results are written to torch's outputs directly.
"""

import threading
from datetime import timedelta

import torch
from torch._C._distributed_c10d import ProcessGroup

from _hvd import _native, process_sets
from _hvd.torch.distributed.data import dtype_name, submit
from _hvd.torch.distributed.moves import Moves
from _hvd.torch.distributed.operation import names, nothing
from _hvd.torch.distributed.reductions import Reductions
from _hvd.torch.distributed.transfers import Transfers
from _hvd.torch.distributed.work import HvdWork, State
from _hvd.torch.tensors import where

NAMES = 16  # of one kind, dtype and size that may be pending before the next waits for its turn
_SIGNATURES = 4096  # then the count restarts, on all ranks at the same call
_labels = {}  # process set -> how many groups it has had, of the runtime's present world


def set_of(ranks):
    """Number of the process set of these global ranks."""
    if ranks != sorted(ranks):
        raise NotImplementedError(
            f"new_group: ranks {ranks} must ascend; sort_ranks=False is not supported"
        )
    if ranks == list(range(_native.size())):
        return 0
    return process_sets.with_signals(_native.set_meet, tuple(ranks))


class HvdProcessGroup(Reductions, Moves, Transfers, ProcessGroup):
    """Created by init_process_group("hvd") and new_group()."""

    def __init__(self, rank, ranks, timeout, set_id):
        super().__init__(rank, len(ranks))
        self._place = rank
        self._ranks = ranks
        self._timeout = timeout
        self._set = set_id
        number = _labels[set_id] = _labels.get(set_id, -1) + 1
        self._label = f"torch{set_id or ''}{f'.{number}' if number else ''}"
        self._shows_order = torch.distributed.get_debug_level() == torch.distributed.DebugLevel.DETAIL
        self._lock = threading.Lock()
        self._counts = {}
        self._receives = []  # (name, operation), those of transfers.py that may be pending
        self._n_receives = 16
        self._n_called = 0
        self._coalesced = None
        self._called_name = str(number)
        self._desc = "undefined"
        self._is_split = False

    # --- identity -----------------------------------------------------------------------------------

    def name(self):
        return "hvd"

    getBackendName = _get_backend_name = name

    def _set_group_name(self, name):
        self._called_name = name

    def _set_group_desc(self, desc):
        self._desc = desc

    def getGroupName(self):
        return self._called_name

    def getGroupDesc(self):
        return self._desc

    group_name = property(getGroupName, _set_group_name)
    group_desc = property(getGroupDesc, _set_group_desc)
    supports_splitting = True
    supports_coalescing = supports_time_estimate = False

    def split_group(self, ranks, timeout=None, opts=None, group_name=None, group_desc=None, **_):
        """For torch.distributed.split_group(). ranks: places in this group; None for a rank outside."""
        if self._place not in ranks:
            return None
        members = [self._ranks[place] for place in ranks]
        seconds = self._timeout if timeout is None else timeout.total_seconds()
        made = HvdProcessGroup(ranks.index(self._place), members, seconds, set_of(members))
        made._is_split = True
        if group_name is not None:
            made._set_group_name(group_name)
        made._set_group_desc(group_desc or "undefined")
        return made

    def eager_connect_single_device(self, device=None):
        """torch calls it for groups that can be split."""

    def get_group_store(self):
        return torch.distributed.distributed_c10d._get_default_store()

    @property
    def _device_types(self):
        """None while torch creates the group: it would attach a recorder that needs a back end in C++."""
        groups = torch.distributed.distributed_c10d._world.pg_map
        if self not in groups and not self._is_split:
            return []
        kinds = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
        return [torch.device(kind) for kind in kinds]

    def _get_backend(self, device):
        if torch.device(device).type not in ("cpu", "cuda"):
            raise RuntimeError(f'the back end "hvd" moves tensors of CPUs and CUDA, not those of {device}')
        return self

    def set_timeout(self, timeout):
        self._timeout = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self):
        return None

    def _get_sequence_number_for_group(self):
        return self._n_called

    def _has_hooks(self):
        return False

    def shutdown(self):
        """destroy_process_group(); the runtime's world stays for later groups."""

    def abort(self):
        """Same as shutdown(): pending operations end by themselves or with the world."""

    # --- submitting ----------------------------------------------------------------------------------

    def _name(self, kind, tensor, numel):
        with self._lock:
            self._n_called += 1
            if self._shows_order:
                return f"{self._label}.{self._n_called}.{kind}"
            key = (kind, tensor.dtype, numel)
            count = self._counts.get(key, 0)
            if len(self._counts) >= _SIGNATURES and key not in self._counts:
                self._counts.clear()
            self._counts[key] = (count + 1) % NAMES
        return f"{self._label}.{kind}.{dtype_name(tensor)}.{numel}.{count}"

    def _submit(self, function, kind, keep, source, output, dtype, shape, *args):
        """Begins an operation. keep: what must live until its end; source: the tensor that is sent."""
        name = self._name(kind, source, source.numel())
        place = where(source)
        described = (keep, nothing, name, source, output, dtype, shape, place)
        return names.submit((self._set, name), lambda: submit(function, *described, *args), place)

    def _work(self, what, operations, outputs, after=None, opts=None, source=None):
        timeout = self._timeout
        given = getattr(opts, "timeout", None)
        if isinstance(given, timedelta) and given > timedelta(0):
            timeout = given.total_seconds()
        state = State(f"{what} of group {self._called_name}", operations, outputs, after, timeout)
        if self._coalesced is not None:
            self._coalesced.append(state)
        return HvdWork(state, source)

    def _start_coalescing(self, *_):
        self._coalesced = []

    def _end_coalescing(self, *args):
        states, self._coalesced = self._coalesced or [], None
        if args and isinstance(args[0], list):
            return None  # before torch 2.0: the works are in the list already
        outputs = [t for s in states for t in s.outputs()]
        state = State("coalesced collectives", [_Joined(s) for s in states], outputs, None, self._timeout)
        return HvdWork(state)


class _Joined:
    """A State where an Operation is expected."""

    def __init__(self, state):
        self._state = state

    def is_over(self):
        return self._state.is_completed()

    def wait(self, _, aside=False):
        self._state.finish(aside=aside)
        if self._state.error is not None:
            raise self._state.error
        if aside:
            self._state.follow_here()
        else:
            self._state.follow()

    def devices(self):
        return self._state.devices

    def let_go(self, _):
        self._state.follow()
