# SPDX-License-Identifier: Apache-2.0
"""Send and receive by the C API against numpy: dtypes, sizes, peers, order, refused arguments."""

import itertools

import capi
import numpy as np
from capi import DTYPES, Op, refused, run, the_world_still_works
from checks import check, check_if, main
from exact import values

capi.init()
R, N = capi.rank(), capi.size()
OTHERS = [r for r in range(N) if r != R]
SHAPES = [(), (0,), (3, 0, 2), (1,), (7,), (4099,), (2, 3, 5)]
LARGE = (2**20 + 3,)


def send(x, dtype, name, to, **options):
    return Op("send", x, dtype, name=name, peer=to, **options)


def recv(x, dtype, name, source, **options):
    return Op("recv", x, dtype, name=name, peer=source, **options)


def sent(shape, dtype, source, to, salt=0):
    """What source sends to `to`: its own for each of them."""
    return values(shape, dtype, source, salt=salt + 17 * to)


@check
def everyone_sends_everything_to_everyone():
    cases = [(d, s) for d in DTYPES for s in SHAPES] + [(d, LARGE) for d in ("float32", "int8", "bfloat16")]
    for at in range(0, len(cases), 20):
        ops = []
        for i, (dtype, shape) in enumerate(cases[at : at + 20]):
            for other in OTHERS:
                x = sent(shape, dtype, R, other)
                ops.append((send(x, dtype, f"all.{i}", other), dtype, shape, None))
                ops.append((recv(np.zeros_like(x), dtype, f"all.{i}", other), dtype, shape, other))
        for op, dtype, shape, source in ops:
            got = op.wait()
            if source is None:
                assert np.array_equal(op.array, sent(shape, dtype, R, op.peer)), "the input has changed"
            else:
                expected = sent(shape, dtype, source, R)
                assert got.shape == expected.shape, f"{dtype} {shape} from {source}: {got.shape}"
                assert np.array_equal(got, expected), f"{dtype} {shape} from rank {source}"


@check
def a_token_goes_round():
    """One after the other: each rank passes on what it got, with its own added."""
    for turn in range(3 if N > 1 else 0):
        x = np.full(turn * 1000 + 1, float(turn))
        if R > 0:
            x = recv(x, None, "token", R - 1).wait() + R
        send(x, None, "token", (R + 1) % N).wait()
        if R == 0:
            got = recv(x, None, "token", N - 1).wait()
            assert np.array_equal(got, np.full_like(x, turn + sum(range(N)))), got[:3]


@check_if(N > 1)
def receiving_into_memory_of_ones_own():
    x, space = values((100,), "int64", 0), np.zeros(102, np.int64)
    if R == 0:
        send(x, None, "own", 1).wait()
    if R == 1:
        assert recv(space[1:101], None, "own", 0, output=space[1:101]).wait() is not None
        assert np.array_equal(space[1:101], x) and space[0] == space[101] == 0
    the_world_still_works()


@check
def a_mismatch_fails_on_both_ranks_only():
    for a, b in itertools.permutations(range(N), 2):
        low, high = min(a, b), max(a, b)
        for what, mine in [
            ("shapes", np.zeros((2, 3 + (b == R)), np.float32)),
            ("types", np.zeros(4, np.int16 if b == R else np.uint16)),
            ("dimensions", np.zeros((4, 1) if b == R else (4,), np.float64)),
        ]:
            words = ["Mismatched", f'"{what} ({a} -> {b})"', f"rank {low} has", f"rank {high} has"]
            if a == R:
                refused(words, send(mine, None, what, b).wait)
            if b == R:
                refused(words, recv(mine, None, what, a).wait)
    the_world_still_works()


@check_if(N > 2)
def one_that_joined_is_not_waited_for():
    x = np.ones(3)
    if R > 1:
        run("join", name="join")
    else:
        (send if R == 0 else recv)(x, None, "beside", 1 - R).wait()
        if R == 0:
            refused(
                ["Send and receive is not supported with Join", '"late (0 -> 2)"'],
                send(x, None, "late", 2).wait,
            )
        run("join", name="join")
    if R in (0, 2):
        (send if R == 0 else recv)(x, None, "late", 2 - R).wait()
    the_world_still_works()


main(R)
