# SPDX-License-Identifier: Apache-2.0
"""hvd.elastic when hosts were added or removed: all ranks are interrupted alike."""

import horovod.torch as hvd
from checks import check, main
from horovod.common.elastic import notification_manager
from horovod.runner.elastic.worker import HostUpdateResult
from horovod.torch.elastic import TorchState

hvd.init()
R, N = hvd.rank(), hvd.size()
LAST = N - 1


def interrupts(function, skip_sync):
    try:
        function()
    except hvd.HostsUpdatedInterrupt as e:
        assert e.skip_sync is skip_sync
    else:
        raise AssertionError("not interrupted")


@check
def changed_hosts_interrupt_all_ranks_by_rank_0s_word():
    state = TorchState(step=0)
    state.check_host_updates()
    if R == LAST and N > 1:
        state.on_hosts_updated(1, HostUpdateResult.added)  # the other ranks do not know it
    state.commit()
    if R == 0:
        state.on_hosts_updated(2, HostUpdateResult.removed)
        state.on_hosts_updated(3, HostUpdateResult.added)
    state.step = 5
    interrupts(state.commit, skip_sync=False)
    state.step = 0
    state.restore()
    assert state.step == 5, "the interrupt came before the commit"
    if R == 0:
        state.on_hosts_updated(3, HostUpdateResult.added)  # old news
    state.commit()
    if R == 0:
        state.on_hosts_updated(4, HostUpdateResult.removed)
        state.on_hosts_updated(2, HostUpdateResult.added)  # late news
    interrupts(state.check_host_updates, skip_sync=True)


@check
def an_interrupt_starts_the_function_again_with_the_state_as_it_is():
    for result, synced in ((HostUpdateResult.added, 2), (HostUpdateResult.removed, 1)):
        state = TorchState(step=0)
        calls = {"sync": 0, "restore": 0, "reset": 0}

        def counted(name, method, calls=calls):
            def call():
                calls[name] += 1
                method()

            return call

        for name in calls:
            setattr(state, name, counted(name, getattr(state, name)))

        @hvd.elastic.run
        def train(state, result=result):
            while state.step < 4:
                state.step += 1
                if state.step == 2 and R == 0:
                    state.on_hosts_updated(1, result)
                state.check_host_updates()
            return state.step

        assert train(state) == 4
        assert calls == {"sync": synced, "restore": 0, "reset": 1}, calls


@check
def a_listener_is_called_only_while_the_function_runs():
    state = TorchState()
    told = []
    state.on_hosts_updated = lambda *args: told.append(args)

    @hvd.elastic.run
    def train(state):
        notification_manager.handle_hosts_updated(1, HostUpdateResult.added)

    train(state)
    notification_manager.handle_hosts_updated(2, HostUpdateResult.added)
    assert told == [(1, HostUpdateResult.added)], told


main(R)
