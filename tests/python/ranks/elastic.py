# SPDX-License-Identifier: Apache-2.0
"""hvd.elastic where no process dies: failed collectives, training that continues to the right result, and hosts
that come and go."""

import os
import time
import warnings

import horovod.torch as hvd
import torch
from checks import check, check_if, expect_error, main
from horovod.common.elastic import notification_manager
from horovod.runner.elastic.worker import HostUpdateResult
from horovod.torch.elastic import TorchState
from references import close, same_everywhere
from training import N, R, batch, joined, loss_of, model
from training import train as train_alone

warnings.simplefilter("ignore")
hvd.init()  # another script of these ranks may have ended the world
LAST = N - 1


def adam(m):
    return torch.optim.Adam(m.parameters(), lr=0.05)


def lowered(optimizer):
    """A scheduler that lowers the rate."""
    return torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)


def reference(steps):
    """One process with the joined batch."""
    m = model(seed=100)  # rank 0's
    optimizer = adam(m)
    train_alone(m, optimizer, steps, joined, lowered(optimizer).step)
    return m


def numbers(m):
    return [p.sum().item() for p in m.parameters()]


def training(fail, commit_each=2, steps=8, zero_first=True, scheduler_first=False):
    """Trains with a failure in step 5, after its backward(); returns the steps begun."""
    m = model(seed=100 + R)
    plain = adam(m)
    scheduler = lowered(plain) if scheduler_first else None
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=m.named_parameters())
    scheduler = scheduler or lowered(optimizer)
    state = TorchState(m, optimizer, scheduler=scheduler, step=0, losses=[])
    begun = []
    resets = []
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])

    @hvd.elastic.run
    def train(state, factor, *, more):
        assert (factor, more) == (1.0, "more")
        begun.append("start")
        while state.step < steps:
            begun.append(state.step)
            if zero_first:
                optimizer.zero_grad()
            loss = loss_of(m, batch(state.step, R)) * factor
            loss.backward()
            if state.step == 5 and begun.count(5) == 1:
                fail()
            optimizer.step()
            if not zero_first:
                optimizer.zero_grad()
            scheduler.step()
            state.losses.append(hvd.allreduce(loss.detach()).item())
            state.step += 1
            if state.step % commit_each == 0:
                state.commit()
        return "result"

    assert train(state, 1.0, more="more") == "result"
    assert train.__name__ == "train"
    close(m, reference(steps))
    same_everywhere((numbers(m), state.losses, optimizer.param_groups[0]["lr"]))
    assert len(state.losses) == steps and resets == [N], (state.losses, resets)
    return begun


def injected():
    if R == LAST:
        raise hvd.HorovodInternalError("injected")


def mismatch():
    hvd.allreduce(torch.ones(3 + R), name="shapes that differ")


def found_nan():
    value = float("nan") if R == LAST else 1.0
    hvd.allreduce(torch.tensor([value]), name="poisoned")


def left_world():
    if R == 0:
        hvd.shutdown()
        raise hvd.HorovodInternalError("has left")


@check
def training_continues_from_the_last_commit():
    for fail in (injected, mismatch, found_nan) if N > 1 else (injected,):
        assert training(fail) == ["start", 0, 1, 2, 3, 4, 5, "start", 4, 5, 6, 7], fail.__name__
    if N > 1:
        training(left_world)


@check
def a_failure_before_the_first_commit_goes_back_to_what_was_synchronised():
    # Horovod 0.28.1 restores each rank's own initial state here. On other ranks that is not rank 0's.
    begun = training(injected, commit_each=100)
    assert begun == ["start", 0, 1, 2, 3, 4, 5, "start", 0, 1, 2, 3, 4, 5, 6, 7]


@check
def gradients_of_the_failed_step_are_not_added_to_the_next():
    training(injected, zero_first=False)


@check
def a_scheduler_made_before_wrapping_still_sets_the_rate():
    training(injected, scheduler_first=True)


@check
def what_was_synced_is_kept_and_does_not_change():
    """The values themselves: symbols/training.py."""
    m = model(seed=R)
    optimizer = adam(m)
    state = TorchState(m, optimizer, epoch=10 + R, history=[R])
    state.sync()
    assert state.model is m and state.optimizer is optimizer
    assert (state.epoch, state.history) == (10, [0])
    synced = same_everywhere(numbers(m))
    with torch.no_grad():
        for p in m.parameters():
            p.add_(R + 1)
    state.history.append("lost")
    state.restore()
    assert (numbers(m), state.history) == (synced, [0])
    state.history.append("again")  # what was kept must not change with what was restored
    state.restore()
    assert state.history == [0]


@check
def values_set_before_the_first_sync_and_without_a_commit_are_kept():
    state = TorchState(epoch=0, step=0)
    state.epoch = 3 if R == 0 else 5
    state.sync()
    assert state.epoch == 3
    state.step = 7
    state.sync()  # as after check_host_updates() without a commit
    assert state.step == 7


@check
def the_object_given_is_the_attribute():
    log = []
    state = TorchState(log=log)
    log.append(1)
    assert state.log is log
    state.sync()
    assert state.log == [1]
    assert R != 0 or state.log is log


@check
def tensors_inside_a_graph_and_modules_given_late_work():
    weight = torch.ones(2, requires_grad=True)
    state = TorchState(loss=weight * 2, other=1)
    state.commit()
    state.loss = None
    state.restore()
    assert state.loss.tolist() == [2.0, 2.0]
    late = model(seed=R)
    state.model = late
    state.sync()
    assert state.model is late
    kept = same_everywhere(numbers(late))
    with torch.no_grad():
        late[0].weight.zero_()
    state.restore()
    assert state.model is late and numbers(late) == kept


@check
def an_attribute_that_cannot_be_saved_is_named():
    words = ['attribute "numbers"', "generator", "leave it out"]
    expect_error(TypeError, words, TorchState, numbers=(i for i in range(3)))


class Counter:
    """A class of the user's with state of its own."""

    def __init__(self):
        self.n = 0

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state):
        self.n = state["n"]


@check
def whatever_has_a_state_dict_is_kept_by_it():
    counter = Counter()
    counter.n = 5 + R
    state = TorchState(counter=counter)
    state.sync()
    assert state.counter is counter and counter.n == 5
    counter.n = 8
    state.restore()
    assert counter.n == 5


class Extra(torch.nn.Linear):
    """A module with state that is no tensor."""

    def __init__(self, value):
        super().__init__(2, 2)
        self.value = value

    def get_extra_state(self):
        return {"value": self.value}

    def set_extra_state(self, state):
        self.value = state["value"]


@check
def extra_state_of_modules_travels():
    m = Extra(f"rank {R}")
    state = TorchState(m)
    state.sync()
    assert m.value == "rank 0"
    m.value = "changed"
    state.restore()
    assert m.value == "rank 0"


@check
def a_failure_that_comes_back_is_raised():
    state = TorchState(step=0)
    calls = []

    @hvd.elastic.run
    def train(state):
        calls.append(state.step)
        raise hvd.HorovodInternalError(f"always on {R}")

    words = ["failed 3 times without a commit", "the last error: always on"]
    expect_error(hvd.HorovodInternalError, words, train, state)
    assert len(calls) == 3
    hvd.barrier()


@check
def failures_are_bounded_although_there_are_commits():
    state = TorchState(step=0)
    os.environ["HVD_ELASTIC_FAILURES"] = "5"

    @hvd.elastic.run
    def train(state):
        state.step += 1
        state.commit()
        raise hvd.HorovodInternalError("again")

    try:
        words = ["failed 5 times (HVD_ELASTIC_FAILURES=5)", "again"]
        expect_error(hvd.HorovodInternalError, words, train, state)
        assert state.step == 5
        os.environ["HVD_ELASTIC_FAILURES"] = "many"
        expect_error(ValueError, ['HVD_ELASTIC_FAILURES="many" is not such as 100'], train, state)
    finally:
        del os.environ["HVD_ELASTIC_FAILURES"]


@check
def a_rank_may_come_back_later_than_a_start_allows():
    os.environ["HOROVOD_START_TIMEOUT"] = "0.3"
    state = TorchState(step=0)

    @hvd.elastic.run
    def train(state):
        state.step += 1
        state.commit()
        if state.step == 1:
            if R == LAST:
                time.sleep(0.8)  # a step that takes long
            raise hvd.HorovodInternalError("once")
        return state.step

    try:
        assert train(state) == 2
    finally:
        del os.environ["HOROVOD_START_TIMEOUT"]


@check_if(N > 1)  # the only set is that of all
def process_sets_are_recreated():
    mine, added = hvd.ProcessSet([LAST]), None
    hvd.shutdown()
    hvd.init(process_sets=[mine])
    if N > 2:
        added = hvd.add_process_set([0, 1])
    state = TorchState(step=0)

    @hvd.elastic.run
    def train(state):
        state.step += 1
        state.commit()
        if state.step == 1:
            raise hvd.HorovodInternalError("once")
        assert (mine.size(), mine.included()) == (1, R == LAST)
        if R == LAST:
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=mine).item() == 1
        if added:
            assert (added.size(), added.included()) == (2, R < 2)
            assert hvd.add_process_set(added) is added, "a script that adds its sets in each world"
            expect_error(ValueError, ["duplicate"], hvd.add_process_set, [0, 1])
            if R < 2:
                assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=added).item() == 2
        assert hvd.remove_process_set(added) if added else True

    train(state)
    hvd.barrier()  # a rank that left at once would fail the other ranks' last commit
    hvd.shutdown()
    hvd.init()


@check
def the_timeout_is_read_as_the_runtime_reads_it():
    from _hvd.elastic import _timeout_ms

    try:
        for text, ms in (
            ("", 600000),
            ("30", 30000),
            ("0.5", 500),
            ("200ms", 200),
            ("5m", 300000),
            ("1h", 3600000),
        ):
            os.environ["HOROVOD_ELASTIC_TIMEOUT"] = text
            assert _timeout_ms() == ms, (text, _timeout_ms())
        os.environ["HOROVOD_ELASTIC_TIMEOUT"] = "soon"
        expect_error(ValueError, ['HOROVOD_ELASTIC_TIMEOUT="soon"', "600"], _timeout_ms)
    finally:
        del os.environ["HOROVOD_ELASTIC_TIMEOUT"]


@check
def a_function_without_a_state_is_an_error():
    @hvd.elastic.run
    def train(epochs):
        pass

    expect_error(TypeError, ["first argument of train()", "TorchState", "not int"], train, 3)
    expect_error(TypeError, ["first argument of train()", "not NoneType"], train)

    @hvd.elastic.run
    def by_name(state):
        return state.step

    assert by_name(state=TorchState(step=4)) == 4


# --- hosts that are added or removed: all ranks are interrupted alike --------------------------------


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


# --- last: one rank does not come back --------------------------------------------------------------


@check_if(N > 1)
def a_rank_that_does_not_come_back_ends_it_in_time():
    os.environ["HOROVOD_ELASTIC_TIMEOUT"] = "700ms"
    state = TorchState(step=0)

    @hvd.elastic.run
    def train(state):
        if R == LAST:
            raise KeyError("leaves")
        hvd.allreduce(torch.ones(2), name="nobody answers")

    if R == LAST:
        expect_error(KeyError, ["leaves"], train, state)
        hvd.shutdown()
    else:
        text = expect_error((hvd.HorovodInternalError, ValueError), ["rank"], train, state)
        assert str(LAST) in text, text
        assert "(HOROVOD_ELASTIC_TIMEOUT is 0.7 s: raise it to wait longer)" in text, text


main(R)
