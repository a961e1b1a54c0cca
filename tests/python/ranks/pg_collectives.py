# SPDX-License-Identifier: Apache-2.0
"""The torch.distributed back end "hvd": every collective against numpy."""

from datetime import timedelta

import horovod.torch.distributed  # noqa: F401  (makes the name known)
import numpy as np
import torch
import torch.distributed as dist
from checks import check, check_if, expect_error, main
from checks import same_numbers as same

dist.init_process_group("hvd", timeout=timedelta(seconds=60))
torch.set_num_threads(1)
R, N = dist.get_rank(), dist.get_world_size()
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES = [*FLOATS, torch.int32, torch.int64, torch.uint8]
SIZES = [0, 1, 7, 70001]
Op = dist.ReduceOp
OPS = [(Op.SUM, np.sum), (Op.PRODUCT, np.prod), (Op.MIN, np.min), (Op.MAX, np.max)]
BITWISE = [(Op.BAND, np.bitwise_and), (Op.BOR, np.bitwise_or), (Op.BXOR, np.bitwise_xor)]


def numbers(size, rank=R):
    """Small whole numbers, other ones on each rank: sums are exact in every dtype."""
    return (np.arange(size) * 7 + rank * 3) % 5


def values(size, dtype=torch.float32, rank=R):
    return torch.from_numpy(numbers(size, rank)).to(dtype)


def all_numbers(size):
    return np.stack([numbers(size, r) for r in range(N)])


def total(size):
    return all_numbers(size).sum(axis=0)


def leaves(expected, collective, x, *args, **options):
    """collective(x, ...) leaves these numbers in x."""
    collective(x, *args, **options)
    same(x, expected)


def each(function):
    for dtype in DTYPES:
        for size in SIZES:
            try:
                function(dtype, size)
            except Exception as e:
                raise AssertionError(f"{dtype}, {size} elements: {e}") from e


@check
def the_group_reports_its_back_end():
    assert dist.get_backend() == "hvd"
    assert dist.is_initialized()
    import horovod.torch as hvd

    hvd.init()  # the same world
    assert (hvd.rank(), hvd.size()) == (R, N)
    same(hvd.allreduce(torch.ones(2), op=hvd.Sum), [N, N])


@check
def all_reduce_equals_numpy():
    def one(dtype, size):
        for op, function in OPS:
            x = values(size, dtype)
            assert dist.all_reduce(x, op=op) is None
            same(x, function(all_numbers(size), axis=0))
        if dtype in FLOATS:
            x = values(size, dtype)
            dist.all_reduce(x, op=dist.ReduceOp.AVG)
            same(x, all_numbers(size).mean(axis=0), 0.02)
        if dtype == torch.int64:
            for op, function in BITWISE:
                x = values(size, dtype)
                dist.all_reduce(x, op=op)
                same(x, function.reduce(all_numbers(size), axis=0))

    each(one)


@check
def all_reduce_with_a_factor():
    x = torch.ones(5)
    half = torch._C._distributed_c10d._make_nccl_premul_sum(0.5)
    if half.__getstate__() is None:  # torch 1.13 keeps it to itself
        expect_error(RuntimeError, ["PREMUL_SUM"], dist.all_reduce, x, op=half)
    else:
        dist.all_reduce(x, op=half)
        same(x, np.full(5, N * 0.5))


@check
def all_gather_of_a_negative_view():
    x = torch.complex(values(1), values(1)).conj().imag  # its memory holds the other sign
    assert x.is_neg() and x.is_contiguous()
    parts = [torch.zeros(1) for _ in range(N)]
    dist.all_gather(parts, x)
    for r, part in enumerate(parts):
        same(part, -numbers(1, r))


@check
def all_reduce_of_complex_and_of_scattered_memory():
    x = torch.complex(values(6), values(6) * 2)
    dist.all_reduce(x)
    same(x.real, total(6))
    same(x.imag, total(6) * 2)
    leaves(total(12).reshape(3, 4).T, dist.all_reduce, values(12).view(3, 4).t())
    x = values(12)
    dist.all_reduce(x[::2])
    expected = numbers(12)
    expected[::2] = all_numbers(12)[:, ::2].sum(axis=0)
    same(x, expected)


@check
def reductions_of_complex_numbers():
    def phases(rank=R, n=2 * N):
        x = torch.from_numpy(numbers(n, rank)).float()
        return torch.complex(x, x * 2)

    everyone = sum(phases(r) for r in range(N))
    x = phases()
    dist.reduce(x, N - 1)
    assert R < N - 1 or torch.equal(x, everyone)
    for y in (phases(), phases().conj()):  # of the latter the memory holds the other sign
        own = torch.empty(2, dtype=y.dtype)
        dist.reduce_scatter(own, list(y.split(2)))
        expected = everyone.conj() if y.is_conj() else everyone
        assert torch.equal(own, expected[2 * R : 2 * R + 2].resolve_conj())
    x = phases()
    dist.all_reduce_coalesced([x])
    assert torch.equal(x, everyone)
    expect_error((RuntimeError, ValueError), ["complex"], dist.reduce, phases(), 0, op=dist.ReduceOp.MAX)
    expect_error((RuntimeError, ValueError), ["complex"], dist.all_reduce, phases(), op=dist.ReduceOp.MAX)


@check
def all_reduce_of_sparse_tensors():
    index = torch.tensor([[0, R + 1, 0]])
    x = torch.sparse_coo_tensor(index, torch.ones(3, 2) * (R + 1), (N + 2, 2))
    dist.all_reduce(x)
    expected = np.zeros((N + 2, 2))
    for r in range(N):
        expected[0] += 2 * (r + 1)
        expected[r + 1] += r + 1
    same(x.to_dense(), expected)


@check
def async_all_reduces_of_one_kind_keep_apart():
    """More at once than there are names: later ones take their turn."""
    xs = [torch.full((9,), float(R + i)) for i in range(70)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    for i in reversed(range(70)):
        assert works[i].wait()
        assert works[i].is_completed()
        assert works[i].is_success()
        assert works[i].exception() is None
        same(xs[i], np.full(9, sum(r + i for r in range(N))))


@check
def a_work_ends_without_a_wait():
    x = torch.ones(4) * R
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        pass
    same(x, np.full(4, sum(range(N))))
    y = torch.ones(4) * R
    dist.all_reduce(y, async_op=True)  # dropped: it ends all the same
    dist.barrier()
    same(y, np.full(4, sum(range(N))))


@check
def a_work_has_a_future():
    x = torch.ones(4) * R
    future = dist.all_reduce(x, async_op=True).get_future()
    tripled = future.then(lambda f: f.value()[0] * 3)
    same(tripled.wait(), np.full(4, 3.0 * sum(range(N))))
    assert isinstance(future, torch._C.Future)
    both = torch.futures.collect_all(
        [dist.all_reduce(torch.ones(2), async_op=True).get_future() for _ in range(20)]
    )
    assert len(both.wait()) == 20


@check
def futures_complete_while_this_thread_computes():
    """No wait anywhere: threads of the back end bring the collective to its end."""
    import threading
    import time

    done = threading.Event()
    x = torch.ones(100000)
    dist.all_reduce(x, async_op=True).get_future().add_done_callback(lambda f: done.set())
    until = time.monotonic() + 60
    while not done.is_set() and time.monotonic() < until:
        torch.ones(1000).sum()
    assert done.is_set()


@check
def broadcast_equals_the_root():
    def one(dtype, size):
        for root in {0, N - 1}:
            leaves(numbers(size, root), dist.broadcast, values(size, dtype), root)

    each(one)
    x = torch.complex(values(3), values(3))
    dist.broadcast(x, 0)
    same(x.imag, numbers(3, 0))
    x = torch.complex(values(1), values(1, rank=R + 1)).conj().imag
    dist.broadcast(x, 0)  # a negative view: its memory holds the other sign
    same(x, -numbers(1, 1))
    x = torch.tensor([R % 2 == 0, True])
    dist.broadcast(x, N - 1)
    assert x.tolist() == [(N - 1) % 2 == 0, True]
    leaves(numbers(12, 0).reshape(3, 4).T, dist.broadcast, values(12).view(3, 4).t(), 0)


@check
def reduce_reaches_its_root_only():
    for root in range(N):
        leaves(total(33) if root == R else numbers(33), dist.reduce, values(33), root, op=dist.ReduceOp.SUM)


@check
def all_gather_equals_numpy():
    def one(dtype, size):
        out = [torch.empty(size, dtype=dtype) for _ in range(N)]
        dist.all_gather(out, values(size, dtype))
        whole = torch.empty(N * size, dtype=dtype)
        dist.all_gather_into_tensor(whole, values(size, dtype))
        for r in range(N):
            same(out[r], numbers(size, r))
        same(whole, all_numbers(size).reshape(-1))

    each(one)
    whole = torch.empty(N, 6)
    dist.all_gather(list(whole.unbind(0)), values(6))
    same(whole, all_numbers(6))
    out = [torch.empty(4, 3).t() for _ in range(N)]
    dist.all_gather(out, values(12).view(3, 4))
    for r in range(N):
        same(out[r], numbers(12, r).reshape(3, 4))


@check
def coalesced_collectives_keep_tensors_apart():
    with_two = [[torch.empty(3), torch.empty(5)] for _ in range(N)]
    dist.all_gather_coalesced(with_two, [values(3), values(5) + 1])
    for r in range(N):
        same(with_two[r][0], numbers(3, r))
        same(with_two[r][1], numbers(5, r) + 1)
    x = [values(3), values(5)]
    dist.all_reduce_coalesced(x)
    same(x[0], total(3))
    same(x[1], total(5))


@check
def gather_and_scatter():
    for root in {0, N - 1}:
        out = [torch.empty(7) for _ in range(N)] if root == R else None
        dist.gather(values(7), out, dst=root)
        if root == R:
            for r in range(N):
                same(out[r], numbers(7, r))
        mine = torch.empty(7)
        dist.scatter(mine, [values(7) + r for r in range(N)] if root == R else None, src=root)
        same(mine, numbers(7, root) + R)


@check
def reduce_scatter_equals_numpy():
    def one(dtype, size):
        out = torch.empty(size, dtype=dtype)
        dist.reduce_scatter(out, [values(size, dtype) + r for r in range(N)])
        same(out, total(size) + R * N)
        out = torch.empty(size, dtype=dtype)
        dist.reduce_scatter_tensor(out, torch.cat([values(size, dtype) + r for r in range(N)]))
        same(out, total(size) + R * N)

    each(one)
    out = torch.empty(R + 1)
    dist.reduce_scatter(out, [torch.full((r + 1,), float(R)) for r in range(N)])
    same(out, np.full(R + 1, sum(range(N))))
    leaves(np.ones(4), dist.reduce_scatter_tensor, torch.empty(4), torch.ones(4 * N), op=dist.ReduceOp.AVG)


@check
def all_to_all_even_and_uneven():
    out = [torch.empty(5) for _ in range(N)]
    dist.all_to_all(out, [torch.full((5,), 10.0 * R + r) for r in range(N)])
    for r in range(N):
        same(out[r], np.full(5, 10.0 * r + R))
    out = [torch.empty(r + 1) for r in range(N)]
    dist.all_to_all(out, [torch.full((R + 1,), 10.0 * R + r) for r in range(N)])
    for r in range(N):
        same(out[r], np.full(r + 1, 10.0 * r + R))
    out = torch.empty(N, 2)
    dist.all_to_all_single(out, torch.arange(N * 2.0).view(N, 2) + 100 * R)
    same(out, np.stack([np.arange(R * 2, R * 2 + 2) + 100 * r for r in range(N)]))
    rows_out = list(range(N))
    out = torch.empty(sum(rows_out), 2)
    given = torch.full((R * N, 2), float(R))
    dist.all_to_all_single(out, given, output_split_sizes=rows_out, input_split_sizes=[R] * N)
    same(out, np.concatenate([np.full((r, 2), r) for r in range(N)]))


@check
def all_to_all_names_the_splits_that_disagree():
    given = torch.ones(N + 1) if R == 0 else torch.ones(N)
    splits = [1] * N
    splits[-1] += R == 0
    out = torch.empty(N)
    if R == N - 1:
        words = ["all_to_all_single", "different sizes"]
        expect_error(RuntimeError, words, dist.all_to_all_single, out, given, [1] * N, splits)
    else:
        dist.all_to_all_single(out, given, [1] * N, splits)


@check_if(N > 1)
def send_and_receive_by_tags():
    right, left = (R + 1) % N, (R - 1) % N
    got = [torch.empty(6), torch.empty(2, 3)]
    works = [dist.irecv(got[0], left, tag=5), dist.irecv(got[1], left, tag=6)]
    works += [dist.isend(values(6) + 1, right, tag=6), dist.isend(values(6), right, tag=5)]
    for w in works:
        w.wait()
    same(got[0], numbers(6, left))
    same(got[1], (numbers(6, left) + 1).reshape(2, 3))
    if R == 0:
        dist.send(torch.arange(4), 1)
        dist.send(torch.arange(4) * 2, 1)
    elif R == 1:
        x = torch.empty(4, dtype=torch.int64)
        assert dist.recv(x, 0) == 0
        same(x, np.arange(4))
        dist.recv(x, 0)
        same(x, np.arange(4) * 2)


@check_if(N > 1)
def several_of_one_tag_keep_their_order():
    right, left = (R + 1) % N, (R - 1) % N
    got = [torch.empty(1) for _ in range(5)]
    works = [dist.irecv(x, left) for x in got] + [
        dist.isend(torch.full((1,), float(i)), right) for i in range(5)
    ]
    for w in works:
        w.wait()
    same(torch.cat(got), np.arange(5))


@check_if(N > 1)
def receives_from_any_rank():
    if R == 0:
        counts, x = [0] * N, torch.empty(2)
        for _ in range(3 * (N - 1)):
            source = dist.recv(x, tag=7)
            same(x, np.array([source, counts[source]]))  # the order of each sender
            counts[source] += 1
        assert counts == [0] + [3] * (N - 1), counts
        same(x.zero_(), np.zeros(2))
        assert dist.recv(x, 1, tag=8) == 1  # was not taken by the receives of another tag
        same(x, np.array([8, 8]))
    else:
        works = [dist.isend(torch.tensor([float(R), i]), 0, tag=7) for i in range(3)]
        works.append(dist.isend(torch.full((2,), 8.0), 0, tag=8) if R == 1 else works[0])
        for w in works:
            w.wait()


@check_if(N > 1)
def a_receive_from_any_rank_comes_before_later_receives():
    if R == 1:
        dist.barrier()
        for i in range(3):
            dist.send(torch.full((1,), float(i)), 0)
    elif R == 0:
        got = [torch.empty(1) for _ in range(3)]
        works = [dist.distributed_c10d._get_default_group().recv_anysource([got[0]], 0)]
        works += [
            dist.irecv(got[1], 1),
            dist.distributed_c10d._get_default_group().recv_anysource([got[2]], 0),
        ]
        assert not works[0].is_completed()
        dist.barrier()
        assert works[2]._source_rank() == works[0]._source_rank() == 1
        works[1].wait()
        same(torch.cat(got), np.arange(3))
    else:
        dist.barrier()


@check_if(N > 1)
def a_receive_from_any_rank_of_a_group_names_the_global_rank():
    members = [0, N - 1]
    group = dist.new_group(members)
    if R == N - 1:
        expect_error(
            RuntimeError, ["Mismatched SENDRECV tensor shapes"], dist.send, torch.ones(3), 0, group
        )
        dist.send(torch.ones(2), 0, group)
    elif R == 0:
        expect_error(
            RuntimeError, ["Mismatched SENDRECV tensor shapes"], dist.recv, torch.ones(2), None, group
        )
        assert dist.recv(torch.ones(2), group=group) == N - 1


@check_if(N > 1)
def batches_of_sends_and_receives():
    right, left = (R + 1) % N, (R - 1) % N
    got = torch.empty(3)
    ops = [dist.P2POp(dist.isend, values(3), right), dist.P2POp(dist.irecv, got, left)]
    for w in dist.batch_isend_irecv(ops):
        w.wait()
    same(got, numbers(3, left))


@check
def refusals_are_sentences():
    if N == 1:
        expect_error(RuntimeError, ["any rank", "no other rank"], dist.recv, torch.ones(2))
    words = ["3 elements", f"{N} ranks", str(2 * N)]
    expect_error(RuntimeError, words, dist.all_gather_into_tensor, torch.ones(3), torch.ones(2))
    expect_error(RuntimeError, ["to_dense"], dist.broadcast, torch.ones(2).to_sparse(), 0)
    if hasattr(torch, "float8_e4m3fn"):
        words = ["float8_e4m3fn", "cannot be reduced"]
        group = dist.group.WORLD
        expect_error(RuntimeError, words, group.allreduce, [torch.ones(2).to(torch.float8_e4m3fn)])
        leaves(np.zeros(3), dist.broadcast, torch.full((3,), float(R)).to(torch.float8_e4m3fn), 0)


@check
def objects():
    everyone = [None] * N
    dist.all_gather_object(everyone, {"rank": R, "text": "x" * (R + 1)})
    assert everyone == [{"rank": r, "text": "x" * (r + 1)} for r in range(N)]
    several = [R, "of", R] if R == 0 else [None] * 3
    dist.broadcast_object_list(several, 0)
    assert several == [0, "of", 0]
    out = [None] * N if R == 0 else None
    dist.gather_object((R, "r"), out, dst=0)
    assert R != 0 or out == [(r, "r") for r in range(N)]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(N)], src=0)
    assert mine == [f"for {R}"]


@check
def barriers():
    dist.barrier()
    dist.barrier(async_op=True).wait()
    dist.group.WORLD.monitored_barrier(timedelta(seconds=120))


@check
def groups_of_some_ranks():
    evens = list(range(0, N, 2))
    odds = list(range(1, N, 2))
    groups = [dist.new_group(ranks) for ranks in (evens, odds) if ranks]
    group, ranks = (groups[0], evens) if R % 2 == 0 else (groups[1], odds)
    leaves(sum(numbers(9, r) for r in ranks), dist.all_reduce, values(9), group=group)
    leaves(numbers(9, ranks[-1]), dist.broadcast, values(9), ranks[-1], group=group)
    assert dist.get_world_size(group) == len(ranks)
    twice = dist.new_group(list(range(N)))
    x = values(9)
    works = [dist.all_reduce(x, group=twice, async_op=True), dist.all_reduce(torch.ones(9), async_op=True)]
    for w in reversed(works):
        w.wait()
    same(x, total(9))
    dist.barrier(group=group)
    everyone = [None] * len(ranks)
    dist.all_gather_object(everyone, R, group=group)
    assert everyone == ranks
    if len(ranks) > 1:
        at = ranks.index(R)
        right, left = ranks[(at + 1) % len(ranks)], ranks[at - 1]
        got = torch.empty(2)
        w = dist.isend(torch.ones(2) * R, right, group=group)
        dist.recv(got, left, group=group)
        w.wait()
        same(got, [left, left])


HAS_SPLIT = hasattr(dist, "split_group") and hasattr(dist.Backend, "_ensure_backend_registered")


@check_if(HAS_SPLIT)  # older ones split groups of NCCL on a GPU only
def groups_are_split():
    half = max(N // 2, 1)
    group = dist.split_group(split_ranks=[list(range(i, min(i + half, N))) for i in range(0, N, half)])
    mine = range(R // half * half, min(R // half * half + half, N))
    assert dist.get_process_group_ranks(group) == list(mine) and dist.get_rank(group) == R % half
    x = torch.full((3,), float(R))
    dist.all_reduce(x, group=group)
    assert x.tolist() == [sum(mine)] * 3, x
    again = dist.split_group(group, split_ranks=[[0]])  # places in the group that is split
    if R % half == 0:
        assert dist.get_process_group_ranks(again) == [R]
        dist.all_reduce(x, group=again)
        assert x.tolist() == [sum(mine)] * 3, x
    else:
        assert again is dist.GroupMember.NON_GROUP_MEMBER


@check
def groups_are_created_and_destroyed():
    for i in range(20):
        ranks = [i % N, (i + 1) % N] if N > 1 else [0]
        group = dist.new_group(sorted(set(ranks)))
        if R in ranks:
            leaves(np.full(3, len(set(ranks))), dist.all_reduce, torch.ones(3), group=group)
            dist.destroy_process_group(group)


@check_if(N > 1)
def monitored_barrier_names_the_missing_ranks():
    barrier = dist.group.WORLD.monitored_barrier
    if R == 0:
        expect_error(RuntimeError, ["monitored_barrier", "rank 1"], barrier, timedelta(seconds=0.3))
    dist.barrier()


@check_if(hasattr(dist, "_functional_collectives"))
def functional_collectives():
    import torch.distributed._functional_collectives as funcol

    world = dist.group.WORLD
    same(funcol.all_reduce(values(9), "sum", world), total(9))
    same(funcol.all_reduce_coalesced([values(9)], "avg", world)[0], all_numbers(9).mean(axis=0), 1e-6)
    gather = getattr(funcol, "all_gather_single", None) or funcol.all_gather_tensor
    same(gather(values(4), 0, world), all_numbers(4).reshape(-1))
    scatter = getattr(funcol, "reduce_scatter_single", None) or funcol.reduce_scatter_tensor
    same(scatter(torch.ones(2 * N), "sum", 0, world), np.full(2, N))
    if hasattr(funcol, "broadcast"):
        same(funcol.broadcast(values(3), 0, world), numbers(3, 0))
    if hasattr(funcol, "all_to_all_single"):
        same(funcol.all_to_all_single(torch.full((N,), float(R)), None, None, world), np.arange(N))


@check
def coalescing():
    manager = getattr(dist.distributed_c10d, "_coalescing_manager", None)
    if manager is None or not hasattr(dist, "_functional_collectives"):
        return
    x, y = values(3), values(5)
    with manager(None, torch.device("cpu"), async_ops=True) as cm:
        dist.all_reduce(x)
        dist.all_reduce(y)
    cm.wait()
    same(x, total(3))
    same(y, total(5))


@check
def it_can_be_destroyed_and_recreated():
    dist.destroy_process_group()
    assert not dist.is_initialized()
    dist.init_process_group("hvd", init_method="hvd://")
    assert (dist.get_rank(), dist.get_world_size()) == (R, N)
    leaves(np.full(3, N), dist.all_reduce, torch.ones(3))
    dist.destroy_process_group()


main(R)
