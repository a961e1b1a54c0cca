# SPDX-License-Identifier: Apache-2.0
"""Operations of horovod.torch: every reduction and dtype, groups, alltoall, send and receive, join, sparse tensors;
odd inputs; results in the runtime's memory; threads and signals.

The values of each operation are compared with the original's by symbols/ and with numpy by capi_data.py; its
gradients, and with them the values of odd shapes, by ops_gradients.py."""

import gc
import os
import threading
import time

import horovod.torch as hvd
import numpy as np
import torch
from _hvd import _native, arrays, handles
from checks import check, check_if, expect_error, in_threads, interrupted, main, resident

hvd.init()
torch.set_num_threads(1)
R, N = hvd.rank(), hvd.size()
DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def equal(got, expected):
    expected = torch.as_tensor(expected)
    assert got.shape == expected.shape, f"shape {tuple(got.shape)}, not {tuple(expected.shape)}"
    assert torch.equal(got.double(), expected.double()), f"{got} is not {expected}"


@check
def bools_and_what_reductions_refuse():
    bits = torch.tensor([R == 0, True, False])
    assert hvd.allreduce(bits, op=hvd.Max).tolist() == [True, True, False]
    assert hvd.allreduce(bits, op=hvd.Min).tolist() == [N == 1, True, False]
    expect_error(ValueError, ["bool", "not supported"], hvd.allreduce, bits, op=hvd.Average)
    expect_error(ValueError, ["int32", "ADASUM"], hvd.allreduce, torch.ones(1).int(), op=hvd.Adasum)
    expect_error(ValueError, ["op must be", "Product", "17"], hvd.allreduce, torch.ones(1), op=17)
    words = ["reducescatter does not support op=hvd.Adasum"]
    for call, what in ((hvd.reducescatter, torch.ones(N)), (hvd.grouped_reducescatter, [torch.ones(N)])):
        expect_error(NotImplementedError, words, call, what, op=hvd.Adasum)
    assert hvd.grouped_allreduce([]) == hvd.grouped_reducescatter([]) == []
    assert hvd.grouped_allreduce_([]) == hvd.grouped_allgather([]) == ()


def phases(rank, *shape, dtype=torch.complex64):
    numbers = torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape)
    return torch.complex(numbers * (rank + 1), numbers - rank).to(dtype)


def same_phases(got, expected):
    assert got.dtype == expected.dtype and got.shape == expected.shape, (got, expected)
    assert torch.allclose(got.resolve_conj(), expected, atol=1e-6), (got, expected)


@check
def complex_numbers_are_reduced_and_moved():
    for dtype in (torch.complex64, torch.complex128):
        for shape in ((), (3,), (N, 2), (2 * N, 3)):
            mine = phases(R, *shape, dtype=dtype)
            total = sum(phases(r, *shape, dtype=dtype) for r in range(N))
            same_phases(hvd.allreduce(mine), total / N)
            same_phases(hvd.allreduce(mine, op=hvd.Sum, prescale_factor=2.0), total * 2)
            same_phases(hvd.reduce(mine, 0, op=hvd.Sum), total if R == 0 else mine.new_empty(0))
            for view in (mine.clone(), mine.clone().conj()):  # of conj() the memory holds the other sign
                expected = total.conj().resolve_conj() if view.is_conj() else total
                assert hvd.allreduce_(view, op=hvd.Sum) is view
                same_phases(view, expected)
            root = phases(0, *shape, dtype=dtype)
            same_phases(hvd.broadcast(mine, 0), root)
            same_phases(hvd.broadcast_(mine.clone(), 0), root)
            same_phases(hvd.broadcast(mine.conj(), 0), root.conj().resolve_conj())
            if not shape:
                continue
            everyone = torch.cat([phases(r, *shape, dtype=dtype) for r in range(N)])
            same_phases(hvd.allgather(mine), everyone)
            same_phases(hvd.grouped_allgather([mine, mine.t().contiguous()])[0], everyone)
            if shape[0] % N == 0:
                rows = shape[0] // N
                own = slice(R * rows, (R + 1) * rows)
                same_phases(hvd.reducescatter(mine, op=hvd.Sum), total[own])
                got, _ = hvd.alltoall(mine, [rows] * N)
                same_phases(got, torch.cat([phases(r, *shape, dtype=dtype)[own] for r in range(N)]))
    mixed = hvd.grouped_allreduce([phases(R, 2), torch.ones(2), phases(R)], op=hvd.Sum)
    same_phases(mixed[0], sum(phases(r, 2) for r in range(N)))
    x = phases(R, 2).requires_grad_()
    hvd.allreduce(x, op=hvd.Sum).abs().pow(2).sum().backward()
    same_phases(x.grad, 2 * N * sum(phases(r, 2) for r in range(N)))


@check
def parameters_and_optimizer_state_of_complex_numbers_are_broadcast():
    p = torch.nn.Parameter(phases(R, 2, 3))
    optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    optimizer.state[p]["momentum_buffer"] = phases(R, 2, 3) * 2
    hvd.broadcast_parameters({"p": p, "conj": phases(R, 2).conj()}, root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    same_phases(p.detach(), phases(0, 2, 3))
    same_phases(optimizer.state[p]["momentum_buffer"], phases(0, 2, 3) * 2)


@check
def what_complex_numbers_have_no_meaning_for_is_refused():
    before = set(handles._pending)
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        words = ["complex64", "hvd.Average and hvd.Sum"]
        for function in (hvd.allreduce, hvd.allreduce_):
            expect_error(ValueError, words, function, phases(R, 2), op=op)
        expect_error(ValueError, words, hvd.grouped_allreduce, [torch.ones(1), phases(R, 2)], op=op)
        expect_error(ValueError, words, hvd.reduce, phases(R, 2), 0, op=op)
        if op != hvd.Adasum:
            expect_error(ValueError, words, hvd.reducescatter, phases(R, N), op=op)
    for function in (hvd.allgather, hvd.alltoall, hvd.reducescatter):
        expect_error(ValueError, ["rank-zero"], function, phases(R))
    assert set(handles._pending) <= before


@check
def groups_of_any_dtypes_and_shapes():
    def tensors():
        return [
            torch.full((2, 3), float(R)),
            torch.tensor(R),
            torch.empty(0),
            torch.full((4,), R + 0.5).half(),
        ]

    total = sum(range(N))
    expected = [torch.full((2, 3), float(total)), torch.tensor(total), torch.empty(0)]
    expected.append(torch.full((4,), total + 0.5 * N))
    mine = tensors()
    handle = hvd.grouped_allreduce_async_(iter(mine), op=hvd.Sum, name="group")
    for got in (hvd.grouped_allreduce(tensors(), op=hvd.Sum), hvd.synchronize(handle)):
        for g, e in zip(got, expected):
            equal(g, e)
    assert isinstance(got, tuple) and all(g is m for g, m in zip(got, mine))
    assert hvd.synchronize(handle) is None and hvd.poll(handle)
    gathered = hvd.grouped_allgather([torch.full((R, 2), float(R)), torch.tensor([R])])
    equal(gathered[1], list(range(N)))
    assert gathered[0].shape == (total, 2)


@check_if(N > 1)
def a_group_of_which_one_tensor_differs_fails_whole_on_all_ranks():
    tensors = [torch.ones(3), torch.ones(2 if R else 4)]
    words = ["mismatch"]
    expect_error(hvd.HorovodInternalError, words, hvd.grouped_allreduce, tensors, name="differs")
    equal(hvd.allreduce(torch.ones(1), op=hvd.Sum), [N])


@check
def splits_are_any_integers():
    rows = torch.arange(N * (N + 1) // 2).reshape(-1, 1) + 100 * R
    splits = list(range(1, N + 1))  # to rank i: i + 1 rows
    start = sum(splits[:R])
    expected = torch.cat([torch.arange(start, start + R + 1) + 100 * r for r in range(N)]).reshape(-1, 1)
    for given in (tuple(splits), torch.tensor(splits)):
        got, received = hvd.alltoall(rows, given)
        equal(got, expected)
        assert received.tolist() == [R + 1] * N
        assert received.dtype == (given.dtype if isinstance(given, torch.Tensor) else torch.int32)
    x = torch.ones(N)
    expect_error(ValueError, ["must be >= 0"], hvd.alltoall, x, [-1] + [1] * (N - 1))
    expect_error(ValueError, ["splits", "float32"], hvd.alltoall, x, torch.ones(N))
    expect_error(ValueError, ["splits", "integer"], hvd.alltoall, x, [1.0] * N)
    expect_error(ValueError, ["rank-zero"], hvd.alltoall, torch.tensor(1.0))


@check
def a_tensor_is_received_with_its_strides():
    if N == 1:
        expect_error(ValueError, ["this rank itself"], hvd.send, torch.ones(1), 0)
        return
    to, source = (R + 1) % N, (R - 1) % N
    turned = torch.zeros(3, 2).t()  # received in place, with strides
    sent = hvd.send_async(torch.arange(6.0).reshape(2, 3), to)
    assert hvd.recv_(turned, source) is turned
    equal(turned, torch.arange(6.0).reshape(2, 3))
    hvd.synchronize(sent)
    expect_error(ValueError, [f"dst_rank {N}", "not in the world"], hvd.send, torch.ones(1), N)


@check
def transfers_with_all_ranks_move_at_once():
    """All are begun before any is waited for, each rank in an order of its own; none is named."""
    others = [(R + k) % N for k in range(1, N)]
    for n in (1, 300_000):
        sent = [hvd.send_async(torch.arange(float(n)) + 10 * R + to, to) for to in others]
        received = [hvd.recv_async(torch.empty(n), source) for source in reversed(others)]
        for source, handle in zip(reversed(others), received):
            equal(hvd.synchronize(handle), torch.arange(float(n)) + 10 * source + R)
        for handle in sent:
            hvd.synchronize(handle)


@check
def a_transfer_that_cannot_be_is_refused():
    x = torch.ones(3)
    for function, argument in ((hvd.send, "dst_rank"), (hvd.recv, "src_rank"), (hvd.recv_, "src_rank")):
        expect_error(ValueError, [f"{argument} {R} is this rank itself"], function, x, R)
        expect_error(ValueError, [f"{argument} {N} is not in the world of {N} ranks"], function, x, N)
        expect_error(ValueError, [f"{argument} -1 is not in the world"], function, x, -1)
        expect_error(TypeError, ["integer"], function, x, str((R + 1) % N))
        expect_error(TypeError, ["expected a torch.Tensor, not list"], function, [1.0], R)
        expect_error(ValueError, ["complex"], function, torch.ones(1, dtype=torch.complex32), (R + 1) % N)
    if N > 1:  # what was refused has taken no automatic name
        sent = hvd.send_async(x, (R + 1) % N)
        equal(hvd.recv(torch.zeros(3), (R - 1) % N), x)
        hvd.synchronize(sent)


@check
def a_transfer_of_two_kinds_fails_on_both_sides():
    if N == 1 or R > 1:
        return
    for what, words in (
        (torch.ones(2 + R), ["shapes"]),
        (torch.ones(2, dtype=torch.float32 if R else torch.float64), ["float32", "float64"]),
    ):
        function = (hvd.send, hvd.recv)[R]
        expect_error(hvd.HorovodInternalError, ["Mismatched", "(0 -> 1)", *words], function, what, 1 - R)
    leaf = torch.nn.Parameter(torch.zeros(2))
    if R == 0:
        hvd.send(torch.tensor([3.0, 4.0]), 1, "leaf")
    else:
        assert hvd.recv_(leaf, 0, "leaf") is leaf
        equal(leaf.detach(), torch.tensor([3.0, 4.0]))


@check
def sparse_tensors_add_up():
    indices, values = [[R, N]], [[1.0, 2.0], [3.0, 4.0]]
    x = torch.sparse_coo_tensor(indices, values, (N + 1, 2))
    expected = torch.zeros(N + 1, 2)
    expected[:N] = torch.tensor([1.0, 2.0])
    expected[N] = torch.tensor([3.0, 4.0]) * N
    equal(hvd.sparse_allreduce_async(x, op=hvd.Sum)().to_dense(), expected)
    none = torch.sparse_coo_tensor(torch.empty(1, 0).long(), torch.empty(0, 2), (N + 1, 2))
    of_rank_0 = torch.sparse_coo_tensor([[0, N]], values, (N + 1, 2)).to_dense()
    equal(hvd.sparse_allreduce_async(x if R == 0 else none, op=hvd.Sum)().to_dense(), of_rank_0)
    expect_error(NotImplementedError, ["hvd.Sum"], hvd.sparse_allreduce_async, x, "m", hvd.Max)
    expect_error(
        ValueError, ["sparse_coo", "strided"], hvd.sparse_allreduce_async, torch.ones(1), "d", hvd.Sum
    )


# --- odd inputs ----------------------------------------------------------------------------------


def odd_tensors():
    grid = torch.arange(24.0).reshape(2, 3, 4) + R
    yield "transposed", grid.permute(2, 0, 1)
    yield "every other", grid[:, :, ::2]
    yield (
        "channels last",
        (torch.arange(48.0).reshape(2, 3, 4, 2) + R).contiguous(memory_format=torch.channels_last),
    )
    yield "no dimension", torch.tensor(1.0 + R)
    yield "empty", torch.empty(0, 3)
    yield "part of a larger one", torch.arange(10.0)[3:7]
    yield "parameter", torch.nn.Parameter(torch.ones(3) * R)
    yield "requires grad", torch.ones(2, requires_grad=True)
    yield "negation", torch.view_as_real(torch.ones(3, dtype=torch.complex64).conj() * (1 + 1j))[:, 1]
    yield "lazy negation", (torch.ones(3) * (1 + 2j + R)).conj().imag
    yield "lazy negation of one", (torch.ones(1) * (1 + 2j)).conj().imag


@check
def odd_tensors_travel_as_what_they_show():
    for what, x in odd_tensors():
        try:
            everyone = hvd.allgather_object(x.detach().clone())
            expected = sum(v.double() for v in everyone)
            equal(hvd.allreduce(x, op=hvd.Sum).detach(), expected)
            equal(hvd.broadcast(x, N - 1).detach(), everyone[N - 1])
            if x.dim():
                equal(hvd.allgather(x).detach(), torch.cat(everyone))
            with torch.no_grad():
                assert hvd.allreduce_(x, op=hvd.Sum) is x
                equal(x.detach(), expected)
                hvd.broadcast_(x, 0)
        except Exception as e:
            raise AssertionError(f"{what}: {e}") from e


@check
def expanded_tensors_are_read_and_not_written():
    x = torch.full((1,), float(R)).expand(4)
    equal(hvd.allreduce(x, op=hvd.Sum), [float(sum(range(N)))] * 4)
    for call in (hvd.allreduce_, lambda t: hvd.broadcast_(t, 0)):
        expect_error(ValueError, ["share memory", "contiguous()"], call, x)


@check
def tensors_elsewhere_get_one_sentence():
    x = torch.empty(2, device="meta")
    for call in (hvd.allreduce, hvd.allreduce_, hvd.allgather, lambda t: hvd.broadcast(t, 0)):
        expect_error(NotImplementedError, ["meta", "tensor.cpu()"], call, x)


# --- results in the runtime's memory --------------------------------------------------------------


@check
def results_keep_their_dtype_and_can_be_written():
    for dtype in [*DTYPES, *FLOATS, torch.bool]:
        x = torch.tensor([1, 0]).to(dtype)
        for got in (hvd.allgather(x), hvd.alltoall(x.repeat(N)), hvd.gather(x, 0)):
            assert got.dtype == dtype, f"{got.dtype}, not {dtype}"
            assert got[:1].tolist() in ([1], [True], []), f"{dtype}: {got}"
            got.zero_()
        if dtype not in (torch.uint8, torch.bool):  # signs count
            assert hvd.allreduce(torch.tensor([R - 1]).to(dtype), op=hvd.Min).tolist() == [-1], dtype
    if hasattr(torch, "uint16"):
        assert hvd.allgather(torch.ones(1, dtype=torch.uint16)).dtype == torch.uint16


@check
def results_give_their_memory_back():
    mine = torch.ones(2**20)
    hvd.allgather(mine)
    before = resident()
    for _ in range(40):
        result = hvd.allgather(mine)
        view = result[3:5]
        del result
        assert view.tolist() == [1.0, 1.0]  # a view holds it
    del view
    gc.collect()
    assert resident() - before < 20 * mine.numel() * 4, f"{(resident() - before) >> 20} MiB more"


@check
def a_handle_whose_result_was_taken_is_not_known_any_more():
    handle = hvd.allgather_async(torch.ones(2))
    result = hvd.synchronize(handle)
    assert hvd.synchronize(handle) is None
    assert handle not in handles._pending
    equal(result, torch.ones(2 * N))
    handle = hvd.allgather_async(torch.ones(2))
    _native.wait(handle)
    capsule = _native.take(handles._pending, handle, 7)  # and nobody takes it
    assert handle not in handles._pending
    assert _native.take(handles._pending, handle, 7) is None
    del capsule
    expect_error(hvd.HorovodInternalError, ["unknown or released"], _native.wait, handle)


@check
def a_result_without_memory_is_given_back_too():
    """Who is not the root of a gather has one. torch before 2.3 calls no deleter of memory at NULL."""
    handle = hvd.gather_async(torch.ones(2), 0)
    result = hvd.synchronize(handle)
    _native.wait(handle)
    del result
    expect_error(hvd.HorovodInternalError, ["unknown or released"], _native.wait, handle)


@check
def results_live_on_when_the_world_has_ended():
    kept = hvd.allgather(torch.full((1000,), float(R)))
    hvd.shutdown()
    equal(kept[::1000], [float(r) for r in range(N)])
    kept += 1
    del kept
    hvd.init()
    kept = hvd.allgather(torch.ones(1000))
    if os.fork() == 0:
        del kept  # in a forked child too
        os._exit(0)
    assert os.wait()[1] == 0
    equal(kept, torch.ones(1000 * N))


# --- threads and signals -------------------------------------------------------------------------


@check_if(N > 1)
def other_threads_run_while_one_waits():
    if R == 0:
        turns = []
        handle = hvd.allreduce_async(torch.ones(1), name="waited for")
        waiter = threading.Thread(target=lambda: (hvd.synchronize(handle), turns.append("end")))
        waiter.start()
        while len(turns) < 1000:  # with the lock of the interpreter held, none of them would come
            turns.append(time.monotonic())
        assert "end" not in turns
        hvd.barrier()
        waiter.join(60)
        assert not waiter.is_alive() and turns[-1] == "end"
    else:
        hvd.barrier()  # rank 0 comes here when its other thread has had its turns
        hvd.allreduce(torch.ones(1), name="waited for")


@check
def threads_share_the_tables_of_handles():
    def work(k):
        for i in range(40):
            x = torch.full((10,), float(i))
            equal(hvd.allreduce(x, op=hvd.Sum, name=f"thread.{k}"), x * N)
            equal(hvd.allgather(torch.tensor([i]), name=f"thread.{k}"), [i] * N)
            pair = hvd.grouped_allreduce([x, x + k], op=hvd.Sum, name=f"thread.{k}")
            equal(pair[1], (x + k) * N)

    in_threads(4, work)


@check
def two_threads_that_wait_for_one_handle_both_end():
    for _ in range(50):
        handle = hvd.allgather_async(torch.ones(3))
        said = []
        in_threads(2, lambda _, handle=handle, said=said: said.append(hvd.synchronize(handle)))
        got = [s for s in said if isinstance(s, torch.Tensor)]
        assert len(said) == 2 and len(got) == 1, said
        assert [s for s in said if not isinstance(s, torch.Tensor)] == [None], said


@check_if(N > 1)
def a_signal_ends_the_wait_and_not_the_operation():

    def start(kind):
        if kind == "tensor":
            return hvd.allreduce_async(torch.ones(2), op=hvd.Sum, name="late")
        return hvd.grouped_allreduce_async([torch.ones(2), torch.ones(3)], op=hvd.Sum, name="late group")

    for kind in ("tensor", "group"):
        if R == 0:
            handle = start(kind)
            interrupted(hvd.synchronize, handle)
            assert not hvd.poll(handle)
            hvd.barrier()
        else:
            hvd.barrier()  # rank 0 reaches this only after its interrupt
            handle = start(kind)
        got = hvd.synchronize(handle)
        got = [got] if kind == "tensor" else got
        assert [t.tolist() for t in got] == [[N] * 2, [N] * 3][: len(got)]


@check
def a_group_with_an_unsupported_tensor_does_not_start():
    """Else all ranks would wait for the rest of it, and its names were taken for good."""
    good = torch.ones(2)
    many = torch.ones([1] * 9)
    bad = torch.ones(2, dtype=torch.bool)
    for function, wrong, words in (
        (hvd.grouped_allreduce, bad, ["bool"]),
        (hvd.grouped_allreduce, torch.ones(1, dtype=torch.complex32), ["ComplexHalf"]),
        (hvd.grouped_allgather, many, ["9 dimensions"]),
        (hvd.grouped_allgather, torch.tensor(1.0), ["rank-zero"]),
        (hvd.grouped_allreduce_, bad, ["bool"]),
        (hvd.grouped_allreduce_, [1.0], ["list"]),
        (hvd.grouped_allreduce_, torch.ones(1).expand(3), ["share memory"]),
    ):
        name = f"{function.__name__} {words}"
        expect_error((ValueError, TypeError), words, function, [good, wrong], name=name)
        assert not handles._pending, name
        got = function([torch.ones(2), torch.ones(3)], name=name)  # the name is free
        assert [x.shape[0] > 0 for x in got] == [True] * 2
    values = torch.ones(1, dtype=torch.complex32)
    sparse = torch.sparse_coo_tensor([[0]], values, (3,))
    expect_error(ValueError, ["complex"], hvd.sparse_allreduce_async, sparse, name="sparse")
    assert not handles._pending


@check
def a_group_of_arrays_of_which_one_cannot_travel_does_not_hang():
    good, many = np.ones(2, np.float32), np.ones([1] * 9, np.float32)
    for groups in ([[0, 1, 2]], [[0, 2]], [[1, 2], [0]], None):
        names = [f"array.{i}" for i in range(3)]
        words = ["9 dimensions"]
        expect_error(
            ValueError, words, arrays.allreduce_all, [good, good, many], names, op=hvd.Sum, groups=groups
        )
        assert not handles._pending, groups
        got = arrays.allreduce_all([good, good, good], names, op=hvd.Sum, groups=groups)
        assert [a.tolist() for a in got] == [[N, N]] * 3, got


@check
def nothing_is_left_over():
    assert not handles._bundles, handles._bundles
    assert not handles._pending, handles._pending


# --- starting from one rank's state ---------------------------------------------------------------


def optimizers():
    for name in sorted(dir(torch.optim)):
        kind = getattr(torch.optim, name)
        if not isinstance(kind, type) or not issubclass(kind, torch.optim.Optimizer):
            continue
        if kind in (torch.optim.Optimizer, torch.optim.LBFGS, torch.optim.SparseAdam) or name == "Muon":
            continue
        for option in ({}, {"foreach": True}, {"fused": True}, {"amsgrad": True}, {"momentum": 0.9}):
            yield f"{name} {option}", kind, option


@check
def state_of_every_optimizer_is_the_roots():
    tried = []
    for what, kind, option in optimizers():
        torch.manual_seed(R)
        model = torch.nn.Linear(3, 2)
        try:
            optimizer = kind(model.parameters(), lr=0.1 * (R + 1), **option)
            if R == 0:
                model(torch.ones(1, 3)).sum().backward()
                optimizer.step()
        except (TypeError, RuntimeError, NotImplementedError, ValueError):
            continue  # has no such option, equally on all ranks
        hvd.broadcast_parameters(model.state_dict(), 0)
        hvd.broadcast_optimizer_state(optimizer, 0, model)
        for x in (optimizer, model):
            said = hvd.allgather_object(x.state_dict())
            assert str(said[R]) == str(said[0]), f"{what}: {said[R]} is not {said[0]}"
        tried.append(what)
    assert len(tried) > 15, tried


main(R)
