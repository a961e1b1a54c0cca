# SPDX-License-Identifier: Apache-2.0
"""The replica guard with torch, under HVD_REPLICA_CHECK=3: a parameter that differs by one bit on one rank is
named, with rank, host and element; equal replicas of every kind pass."""

import socket

import horovod.torch as hvd
import torch
from _hvd import replica
from checks import check, check_if, expect_error, main

hvd.init()
N, R = hvd.size(), hvd.rank()
HOST = socket.gethostname()
LAST = N - 1


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(16, 2)
    )


def data(step):
    torch.manual_seed(1000 * R + step)
    return torch.randn(8, 1, 4, 4)


def distributed(m, params=None, **options):
    plain = torch.optim.SGD(params or m.parameters(), lr=0.01, momentum=0.9)
    return hvd.DistributedOptimizer(plain, m.named_parameters(), **options)


def steps(m, optimizer, n, first=1, passes=1, of=data):
    for step in range(first, first + n):
        optimizer.zero_grad()
        for _ in range(passes):
            m(of(step)).square().mean().backward()
        optimizer.step()


def flip(p, element, bit=0):
    """Changes one bit of one element, counted row by row."""
    index = ()
    for n in reversed(p.shape):
        index, element = (element % n, *index), element // n
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[p.element_size()]
    with torch.no_grad():
        one = p.detach()[index].clone().reshape(1)
        one.view(whole).bitwise_xor_(1 << bit)
        p.detach()[index] = one[0]
        return p.detach()[index].item()


def alike(n):
    """The sentence's words about the ranks that are right."""
    right = [str(r) for r in range(n)]
    return f"ranks {', '.join(right[:-1])} and {right[-1]}" if n > 1 else f"rank {right[0]}"


def error_of(step, name, element, n_elements, there, here):
    """All words of the sentence about the last rank."""
    if N == 2:
        who, where = f'parameter "{name}" of ranks 0 and 1 differs (', "on rank 0"
    else:
        who, where = (
            f'parameter "{name}" of rank {LAST} (host {HOST}) differs from {alike(LAST)} (',
            "there",
        )
    detail = (
        f"element {element}: {there} {where}, {here} on rank {LAST}; 1 of {n_elements} elements differ)"
    )
    return [f"replica check at step {step}: {who}{detail}", *(["either may be right"] if N == 2 else [])]


@check
def equal_replicas_pass():
    m = model()
    steps(m, distributed(m), 30)  # BatchNorm's statistics differ


@check_if(N > 1)
def one_bit_of_one_rank_is_named():
    m = model()
    optimizer = distributed(m)
    steps(m, optimizer, 4)
    with torch.no_grad():
        m[3].weight[1, 5] = 0.125
    if R == LAST:
        flip(m[3].weight, 21)
    optimizer.zero_grad()  # so that the step changes nothing
    optimizer.param_groups[0]["lr"] = 0.0
    steps(m, optimizer, 1)
    words = error_of(6, "3.weight", 21, 32, "0.125", "0.125000015")
    text = expect_error(hvd.HorovodInternalError, words, steps, m, optimizer, 1)
    texts = hvd.allgather_object(text)
    assert texts == [text] * N, texts
    if R == LAST:
        flip(m[3].weight, 21)
    steps(m, optimizer, 3)  # the world continues


@check_if(N > 1)
def each_dtype_is_named_with_its_number():
    for dtype, bit, there, here in (
        (torch.float16, 0, "1", "1.001"),
        (torch.bfloat16, 0, "1", "1.008"),
        (torch.float32, 0, "1", "1.00000012"),
        (torch.float64, 0, "1", "1.0000000000000002"),
    ):
        p = torch.nn.Parameter(torch.ones(7, 5, dtype=dtype))
        if R == LAST:
            flip(p, 33, bit)
        words = [f"element 33: {there}", f"{here} on rank {LAST}", "1 of 35"]
        expect_error(hvd.HorovodInternalError, words, hvd.check_replicas, {"w": p})


@check_if(N > 1)
def what_looks_alike_is_shown_in_bits():
    nan = torch.tensor([float("nan")])
    if R == LAST:
        flip(nan, 0)
    expect_error(hvd.HorovodInternalError, ["0x7fc00000", "0x7fc00001"], hvd.check_replicas, [nan])


@check
def half_precision_and_views_and_frozen_parameters_pass():
    m = model()
    m[0].to(memory_format=torch.channels_last)
    m[3].bias.requires_grad_(False)
    whole = torch.zeros(6, 4)
    m.view = torch.nn.Parameter(whole.t()[1:])
    m.short = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    m.none = torch.nn.Parameter(torch.zeros(0, 3))
    m.scalar = torch.nn.Parameter(torch.tensor(2.0))
    optimizer = distributed(m)
    for step in range(1, 10):
        optimizer.zero_grad()
        rest = m.view.sum() * R + m.short.float().sum() * step + m.scalar + m.none.sum()
        (m(data(step)).square().mean() + rest).backward()
        optimizer.step()
    if R == LAST:
        flip(m.view, 7)
    if N > 1:
        words = ['parameter "view"', "element 7:", "1 of 18"]
        expect_error(hvd.HorovodInternalError, words, steps, m, optimizer, 3)


@check
def accumulated_gradients_count_as_one_step():
    m = model()
    optimizer = distributed(m, backward_passes_per_step=2)
    steps(m, optimizer, 2, passes=2)
    if R == LAST:
        flip(m[3].bias, 0)
    if N > 1:
        words = ["at step 3:", "3.bias"]
        expect_error(hvd.HorovodInternalError, words, steps, m, optimizer, 1, passes=2)


@check
def sparse_gradients_and_closures_pass():
    torch.manual_seed(0)
    m = torch.nn.Embedding(50, 3, sparse=True)
    plain = torch.optim.SGD(m.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain, m.named_parameters())

    def loss():
        optimizer.zero_grad()
        value = m(torch.tensor([R, 7])).square().sum()
        value.backward()
        return value

    for _ in range(7):
        optimizer.step(loss)
    if R == LAST:
        flip(m.weight, 149)
    if N > 1:
        words = ['"weight"', "element 149", "1 of 150"]
        expect_error(hvd.HorovodInternalError, words, lambda: [optimizer.step(loss) for _ in range(3)])


@check
def adasum_passes():
    m = model()
    steps(m, distributed(m, op=hvd.Adasum), 6)


@check
def groups_that_differ_on_purpose_are_left_out():
    m = model()
    mine = torch.nn.Parameter(torch.full((3,), float(R)))
    plain = torch.optim.SGD(
        [{"params": list(m.parameters())}, {"params": [mine], "replica_check": False}], lr=0.01
    )
    optimizer = hvd.DistributedOptimizer(plain)
    steps(m, optimizer, 6)
    optimizer.param_groups[1]["replica_check"] = True
    if N > 1:
        words = ['parameter "number 0 of group 1"', "element 0: 0 ", f"{N - 1} on rank" if N == 2 else ""]
        expect_error(hvd.HorovodInternalError, words, steps, m, optimizer, 3)


@check_if(N > 1)
def another_number_of_steps_or_parameters_is_named():
    p = torch.nn.Parameter(torch.ones(2))
    params = [("a", p), ("b", p)] if R == LAST else [("a", p)]
    words = [f"rank {LAST if N > 2 else 1} (host", "has 2 parameters, rank 0 1"]
    expect_error(hvd.HorovodInternalError, words, hvd.check_replicas, params)
    shaped = torch.ones(2, 3) if R == LAST else torch.ones(3, 2)
    words = ['"param.0" (float32, shape (2, 3)) where rank 0 has "param.0" (float32, shape (3, 2))']
    expect_error(hvd.HorovodInternalError, words, hvd.check_replicas, [shaped])


@check_if(N == 4)
def the_largest_group_is_right():
    p = torch.ones(3)
    p[2] = 5.0 if R in (0, 3) else 1.0
    p[1] = 5.0 if R == 3 else 1.0
    words = [
        'parameter "param.0" of rank 0 (host',
        "differs from ranks 1 and 2 (element 2: 1 there, 5 on rank 0; 1 of 3 elements differ)",
        "rank 3 differ from both",
    ]
    expect_error(hvd.HorovodInternalError, words, hvd.check_replicas, [p])


@check_if(N == 4)
def a_process_set_checks_by_itself():
    ours = hvd.add_process_set([0, 2])
    other = hvd.add_process_set([1, 3])
    mine = ours if R in (0, 2) else other
    torch.manual_seed(R % 2)
    m = torch.nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(m.parameters(), lr=0.01), m.named_parameters(), process_set=mine
    )
    turn = lambda step: torch.full((4, 3), float(R + step))  # noqa: E731
    steps(m, optimizer, 6, of=turn)
    if R == 3:
        flip(m.weight, 4)
    if R in (1, 3):
        words = ['"weight" of ranks 1 and 3 differs (element 4:', "on rank 1"]
        expect_error(hvd.HorovodInternalError, words, steps, m, optimizer, 3, of=turn)
    else:
        steps(m, optimizer, 3, of=turn)
    hvd.barrier()
    hvd.remove_process_set(ours)
    hvd.remove_process_set(other)


@check
def ranks_without_data_are_no_difference():
    m = model()
    optimizer = distributed(m)
    steps(m, optimizer, 4 + 3 * R)
    hvd.join()


@check
def a_new_world_counts_from_one():
    m = model()
    optimizer = distributed(m)
    steps(m, optimizer, 2)
    hvd.shutdown()
    hvd.init()
    steps(m, optimizer, 2)
    if R == LAST:
        flip(m[3].bias, 1)
    if N > 1:
        expect_error(hvd.HorovodInternalError, ["at step 3:", "3.bias"], steps, m, optimizer, 1)


@check
def a_number_has_the_digits_that_tell_its_neighbours_apart():
    assert replica.number_text("int64", (-5).to_bytes(8, "little", signed=True)) == "-5"
    assert replica.number_text("uint8", b"\xff") == "255"
    assert replica.number_text("bool", b"\x01") == "0x01"
    assert replica.number_text("bfloat16", b"\x80\x3f") == "1"


if __name__ == "__main__":
    main(R)
