# SPDX-License-Identifier: Apache-2.0
"""The replica guard: do all ranks still have the same parameters, bit by bit?

Every HVD_REPLICA_CHECK steps of an optimizer the ranks of its process set compare one number, the digest of
the digests of their parameters. Only if these differ, more is exchanged:

    record (24 bytes) of each rank -- all equal --> done; also if a rank has joined (hvd.join)
       |
    names, shapes and digests of each rank's parameters --> the first parameter that differs; groups of
       |                                                    ranks whose values are equal
    that parameter of one rank of the largest group, to all --> the first element that differs

All ranks of the set receive the same, and so raise the same error. The largest group counts as right. With
two groups of the same size none does.

This file knows no framework. A `Value` is one parameter; torch/replica.py and keras/replica.py make them.

Invariant: the number of steps is counted anew in each world, because ranks that join later begin at zero.
"""

import collections
import json
import socket
import struct
import warnings

from _hvd import _native, handles
from _hvd.basics import Sum
from _hvd.exceptions import HorovodInternalError
from _hvd.objects import allgather_object, broadcast_bytes
from _hvd.process_sets import process_set_id

_RECORD = struct.Struct("<QQQ")  # step + 1, digest of names and shapes, digest of digests
_INT64 = 5
_MANY = 8  # ranks that a sentence lists
_NAME = "replica_check"


class _World:
    """Rank 0's HVD_REPLICA_CHECK and HVD_REPLICA_ACTION, and what was reported in this world."""

    number = None
    period, warns = 0, False
    reported = set()


def _world():
    if _World.number != handles.world:
        said = json.loads(_native.describe())
        _World.period, _World.warns = said.get("replica_check", 0), said.get("replica_warns", False)
        _World.reported = set()
        _World.number = handles.world
    return _World


def period():
    """Steps between two checks in this world; 0: there are none."""
    return _world().period


class Value:
    """One parameter. held(): (what keeps its memory alive, its address in host memory) of its elements row
    by row. key: what is equal on all ranks besides dtype and shape: the name, or "" if those differ."""

    def __init__(self, name, dtype, shape, size, held, key=None):
        self.key = name if key is None else key
        self.name, self.dtype, self.shape = name, dtype, tuple(int(n) for n in shape)
        self.size = size  # bytes of one element
        self.held = held
        self.n = 1
        for length in self.shape:
            self.n *= length

    def layout(self):
        return self.key, self.dtype, self.shape

    def digest(self):
        keep, at = self.held()
        digest = _native.digest(at, self.n * self.size)
        del keep
        return digest


def array_value(name, dtype, shape, read):
    """A Value of a numpy array or scalar, which read() returns. Its name may differ between ranks."""

    def held():
        import numpy as np

        there = np.asarray(read(), order="C")  # a scalar is no array
        return there, there.ctypes.data

    return Value(name, dtype.name, shape, dtype.itemsize, held, key="")


class Guard:
    """The steps of one optimizer."""

    def __init__(self):
        self.world, self.step = None, 0

    def is_due(self, process_set):
        """Counts a step. Whether the ranks compare their parameters after it."""
        world = _world()
        if not world.period or not process_set.included() or process_set.size() == 1:
            return False
        if self.world != world.number:
            self.world, self.step = world.number, 0
        self.step += 1
        return self.step % world.period == 0

    def check(self, values, process_set):
        """Raises HorovodInternalError if a parameter differs, or warns with HVD_REPLICA_ACTION=warn."""
        check(values, process_set, self.step, _world().warns)


def check(values, process_set, step=0, warns=False):
    """Compares these values over the ranks of the set, which all call it with the same ones.

    step: for the sentence; 0: none. warns: a difference is a warning, once for each parameter.
    """
    set_id = process_set_id(process_set)
    digests = [value.digest() for value in values]
    layout = [value.layout() for value in values]
    both = (_digest_of(repr(layout).encode()), _digest_of(struct.pack(f"<{len(digests)}Q", *digests)))
    records = _exchange(_RECORD.pack(step + 1, *both), process_set)
    if len(set(records)) == 1 or any(not any(record) for record in records):
        return
    said = allgather_object((socket.gethostname(), step, layout, digests), f"{_NAME}.digests", process_set)
    ranks = process_set.ranks
    world = _World.number
    with_shapes = _other_layout(said, ranks)
    if with_shapes:
        place, sentence = (set_id, None), with_shapes
    else:
        differ = [i for i in range(len(values)) if len({rank[3][i] for rank in said}) > 1]
        fresh = [i for i in differ if not warns or (set_id, i) not in _World.reported]
        if not fresh:
            return
        place = (set_id, fresh[0])
        groups = _groups({rank: one[3][fresh[0]] for rank, one in zip(ranks, said)})
        detail = _first_element(values[fresh[0]], groups, set_id, process_set)
        hosts = {rank: one[0] for rank, one in zip(ranks, said)}
        sentence = _sentence(values[fresh[0]], groups, hosts, detail, len(differ), len(values))
    sentence = f"replica check{f' at step {step}' if step else ''}: {sentence}"
    if not warns:
        raise HorovodInternalError(sentence)
    if place not in _World.reported and world == _World.number:
        _World.reported.add(place)
        if _native.rank() == ranks[0]:
            text = f"{sentence}; training continues (HVD_REPLICA_ACTION=warn)"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _exchange(record, process_set):
    """The records of all ranks of the set, zeros of those that have joined. By a sum, which a rank that has
    joined takes part in."""
    begin, size = process_set.rank() * len(record), len(record)
    buffer = bytearray(process_set.size() * size)
    buffer[begin : begin + size] = record
    at = _native.address(buffer)
    tensor = (_NAME, at, at, _INT64, (len(buffer) // 8,))
    args = (Sum, 1.0, 1.0, process_set_id(process_set))
    handles.finish(handles.submit(_native.allreduce, buffer, lambda h: None, tensor, *args))
    return [bytes(buffer[i : i + size]) for i in range(0, len(buffer), size)]


def _digest_of(content):
    buffer = bytearray(content)
    return _native.digest(_native.address(buffer), len(buffer)) if buffer else 0


def _groups(digest_of):
    """[ranks with equal values], the largest first, then the one with the lowest rank."""
    of = collections.defaultdict(list)
    for rank, digest in digest_of.items():
        of[digest].append(rank)
    return sorted(of.values(), key=lambda ranks: (-len(ranks), ranks[0]))


def _other_layout(said, ranks):
    """A sentence about ranks that do not check the same parameters in the same step; None if all do."""
    groups = _groups({rank: repr(one[1:3]) for rank, one in zip(ranks, said)})
    if len(groups) == 1:
        return None
    a, b = groups[0][0], groups[1][0]
    (_, step_a, of_a, _), (host, step_b, of_b, _) = said[ranks.index(a)], said[ranks.index(b)]
    if step_a != step_b:
        return f"rank {b} (host {host}) has taken {step_b} steps, rank {a} {step_a}"
    if len(of_a) != len(of_b):
        return f"rank {b} (host {host}) has {len(of_b)} parameters, rank {a} {len(of_a)}"
    one, other = next((x, y) for x, y in zip(of_a, of_b) if x != y)
    texts = [f'"{name}" ({dtype}, shape {shape})' for name, dtype, shape in (other, one)]
    return f"rank {b} (host {host}) has parameter {texts[0]} where rank {a} has {texts[1]}"


def _first_element(value, groups, set_id, process_set):
    """Of each group but the first: {its lowest rank: (element, number of elements that differ, the first
    group's number, the rank's)}, None where the values are equal by now."""
    root, mine = groups[0][0], _native.rank()
    keep, at = value.held()
    there = bytearray(value.n * value.size)
    if mine == root and there:
        _native.copy(_native.address(there), at, len(there))
    broadcast_bytes(f"{_NAME}.value", there, root, set_id)
    found = None
    if mine in [ranks[0] for ranks in groups[1:]]:
        where = _native.difference(_native.address(there), at, value.n, value.size)
        if where:
            found = (*where, *_texts(value, there, at, where[0]))
    del keep
    all_found = allgather_object(found, f"{_NAME}.element", process_set)
    return dict(zip(process_set.ranks, all_found))


def _texts(value, there, at, element):
    """The element's two numbers, or bits where their numbers look alike."""
    begin = element * value.size
    here = bytearray(value.size)
    _native.copy(_native.address(here), at + begin, value.size)
    pair = [bytes(there[begin : begin + value.size]), bytes(here)]
    texts = [number_text(value.dtype, one) for one in pair]
    return texts if texts[0] != texts[1] else [f"0x{one[::-1].hex()}" for one in pair]


def number_text(dtype, content):
    """One element as a number, with digits that tell its neighbours apart; bits of an unknown dtype."""
    if dtype == "bfloat16":
        return f"{struct.unpack('<f', bytes(2) + content)[0]:.4g}"
    form = {"float16": ("<e", ".5g"), "float32": ("<f", ".9g"), "float64": ("<d", ".17g")}.get(dtype)
    if form:
        return format(struct.unpack(form[0], content)[0], form[1])
    if dtype.startswith(("int", "uint")):
        return str(int.from_bytes(content, "little", signed=dtype.startswith("int")))
    return f"0x{content[::-1].hex()}"


def _listed(ranks):
    """Such as "rank 2", "ranks 0, 1 and 3", or of many "997 ranks (3, 4, 5, ...)"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    words = [str(rank) for rank in ranks]
    if len(ranks) <= _MANY:
        return f"ranks {', '.join(words[:-1])} and {words[-1]}"
    return f"{len(ranks)} ranks ({', '.join(words[:_MANY])}, ...)"


def _sentence(value, groups, hosts, detail, n_differ, n_values):
    right, wrong = groups[0], groups[1]
    first = wrong[0]
    is_tie = len(right) == len(wrong)
    if is_tie and len(right) == 1:
        text = f'parameter "{value.name}" of {_listed(sorted(right + wrong))} differs'
    else:
        who = f"{_listed(wrong)}{f' (host {hosts[first]})' if len(wrong) == 1 else ''}"
        text = f'parameter "{value.name}" of {who} differs from {_listed(right)}'
    if detail[first] is None:
        text += ", but its values were equal when they were compared: something changes them meanwhile"
    else:
        at, n, there, here = detail[first]
        where = f"on rank {right[0]}" if is_tie else "there"
        text += f" (element {at}: {there} {where}, {here} on rank {first}; {n} of {value.n} elements differ"
        text += f"; {n_differ} of {n_values} parameters differ)" if n_differ > 1 else ")"
    others = [ranks for ranks in groups[2:]]
    if others:
        text += f"; {_listed(sorted(rank for ranks in others for rank in ranks))} differ from both"
    if is_tie:
        text += "; either may be right"
    return text
