# SPDX-License-Identifier: Apache-2.0
"""Which rank keeps a copy of which rank's parts, and which rank sends what after a loss. Pure.

    hosts of the ranks --> holders(): the rank that keeps the copy of each rank's parts
                                |
    after a loss: what each rank of the new world has (its Inventory)
                                |
       newest_whole(): the newest commit of which every part is on some rank, or the parts that are lost
                                |
       assign():       which rank of the new world gets which part, balanced
                                |
       transfers():    (part, from rank, to rank), for parts that are not there yet

A commit is (world, number), so that one of a world that failed is never taken for one of a later world.
A part is named by an int or a str. Called by sharded.py; every rank gets the same result.
"""

import collections

# A part in a manifest, which lists all parts of a commit: its name, and (rank, host) of its owner and of
# the holder of its copy (None: there is no other rank).
Part = collections.namedtuple("Part", "name owner holder")

# What a rank has: manifests {commit: [Part]}; parts {commit: [names]}, its own and copies; own {commit:
# [names]}; replicas [commits] whose replicated state it has.
Inventory = collections.namedtuple("Inventory", "manifests parts own replicas")


def order_of(name):
    """Sorts names of both types."""
    return (isinstance(name, str), name)


def _blocks(hosts):
    """Ranks by host, hosts by their first rank."""
    blocks = {}
    for rank, host in enumerate(hosts):
        blocks.setdefault(host, []).append(rank)
    return list(blocks.values())


def holders(hosts):
    """The holder of each rank's copy, on another host if there is one. hosts: the host of each rank.

    The ranks form a ring, host by host, and each is held by the one that is as many places further as the
    largest host has ranks, so each rank holds one copy. If one host has more than half of the ranks, those
    of the other hosts hold several, equally many or one more. With one host the holder is the next rank;
    with one rank it is None.
    """
    blocks = sorted(_blocks(hosts), key=len, reverse=True)  # stable
    ring = [rank for block in blocks for rank in block]
    n, largest = len(ring), len(blocks[0])
    if n == 1:
        return [None]
    if len(blocks) == 1:
        largest = 1
    result = [None] * n
    if 2 * largest <= n or len(blocks) == 1:
        for place, rank in enumerate(ring):
            result[rank] = ring[(place + largest) % n]
        return result
    big, others = ring[:largest], ring[largest:]
    for place, rank in enumerate(big):
        result[rank] = others[place % len(others)]
    for place, rank in enumerate(others):
        result[rank] = big[place]
    return result


def newest_whole(inventories):
    """(commit, []): the newest that is whole; (None, what the best one lacks); (None, []): there was none.

    Whole: each part of its manifest is on some rank, and rank 0 has the replicated state.
    """
    manifests = {}
    for inventory in inventories:
        manifests.update(inventory.manifests)
    least = None
    for commit in sorted(manifests, reverse=True):
        there = {name for inventory in inventories for name in inventory.parts.get(commit, ())}
        lost = [part for part in manifests[commit] if part.name not in there]
        if not lost and commit in inventories[0].replicas:
            return commit, []
        lost = lost or [Part("the replicated state", None, None)]
        if least is None or len(lost) < len(least):
            least = lost
    return None, least or []


def assign(names, owned, size):
    """{name: rank} for all names. owned: {name: rank} of those whose owner is in the world.

    An owner keeps what it has as far as the balance allows: no rank gets two parts more than another one.
    """
    least, extras = divmod(len(names), size)
    names = sorted(names, key=order_of)
    loads, result = [0] * size, {}
    for limit in (least, least + 1):
        for name in names:
            rank = owned.get(name)
            if name in result or rank is None or loads[rank] >= limit:
                continue
            if limit > least:
                if not extras:
                    break
                extras -= 1
            result[name] = rank
            loads[rank] += 1
    for name in names:
        if name not in result:
            result[name] = min(range(size), key=lambda rank: (loads[rank], rank))
            loads[result[name]] += 1
    return result


def transfers(commit, assignment, inventories):
    """[(name, from, to)] of the parts that a rank lacks, sent by the one that has fewer sends."""
    sends = [0] * len(inventories)
    plan = []
    for name in sorted(assignment, key=order_of):
        to = assignment[name]
        sources = [r for r, i in enumerate(inventories) if name in i.parts.get(commit, ())]
        if to not in sources:
            source = min(sources, key=lambda rank: (sends[rank], rank))
            sends[source] += 1
            plan.append((name, source, to))
    return plan


def sentence(lost):
    """What is lost, for the user."""

    def place(at):
        return "nowhere" if at is None else f"rank {at[0]} on {at[1]}"

    parts = "; ".join(
        f"part {part.name!r} (of {place(part.owner)}, its copy on {place(part.holder)})" for part in lost
    )
    return (
        f"hvd.elastic: the state of {len(lost)} part{'s' * (len(lost) > 1)} is lost, because the ranks "
        f"that had it and its copy have gone: {parts}; continue from the last checkpoint"
    )
