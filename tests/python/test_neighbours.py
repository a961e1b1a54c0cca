# SPDX-License-Identifier: Apache-2.0
"""_hvd/neighbours.py, by tables: holders of copies, the newest whole commit, and who sends what to whom."""

import collections
import itertools
import sys
import unittest

from job import STAGE

sys.path.append(str(STAGE / "python"))
from _hvd.neighbours import Inventory, Part, assign, holders, newest_whole, sentence, transfers

OLD, NEW = (1, 7), (1, 8)


def part(name, owner=0, holder=1):
    return Part(name, (owner, f"h{owner}"), None if holder is None else (holder, f"h{holder}"))


def has(parts, replicas=(), own=None, manifests=None):
    return Inventory(manifests or {}, parts, own or {}, list(replicas))


class Holders(unittest.TestCase):
    def test_tables(self):
        for hosts, expected in (
            ("a", [None]),
            ("aa", [1, 0]),
            ("aaa", [1, 2, 0]),
            ("ab", [1, 0]),
            ("abc", [1, 2, 0]),
            ("aabb", [2, 3, 0, 1]),
            ("abab", [1, 0, 3, 2]),
            ("aab", [2, 2, 0]),
            ("aaaab", [4, 4, 4, 4, 0]),
            ("baaa", [1, 0, 0, 0]),
            ("aaaabb", [4, 5, 4, 5, 0, 1]),
        ):
            self.assertEqual(holders(hosts), expected, hosts)

    def test_all_worlds_of_up_to_seven_ranks(self):
        for n in range(2, 8):
            for hosts in itertools.product("abcd", repeat=n):
                got = holders(hosts)
                counts = collections.Counter(hosts)
                held = collections.Counter(got)
                self.assertNotIn(None, got)
                for rank, holder in enumerate(got):
                    self.assertNotEqual(rank, holder, hosts)
                    if len(counts) > 1:
                        self.assertNotEqual(hosts[rank], hosts[holder], hosts)
                if 2 * max(counts.values()) <= n or len(counts) == 1:
                    self.assertEqual(set(held.values()), {1}, hosts)
                for ranks in (range(n),) if len(counts) == 1 else ():
                    self.assertEqual({held[r] for r in ranks}, {1})
                big = counts.most_common(1)[0][0]
                rest = [held[r] for r in range(n) if hosts[r] != big]
                if rest:
                    self.assertLessEqual(max(rest) - min(rest), 1, hosts)


class NewestWhole(unittest.TestCase):
    manifests = {OLD: [part("a"), part("b", 1, 0)], NEW: [part("a"), part("b", 1, 0)]}

    def check(self, expected, *inventories):
        self.assertEqual(newest_whole(inventories), expected)

    def test_there_was_no_commit(self):
        self.check((None, []), has({}), has({}))

    def test_all_parts_are_there(self):
        both = has({OLD: ["a", "b"], NEW: ["a", "b"]}, [OLD, NEW], manifests=self.manifests)
        self.check((NEW, []), both)

    def test_a_copy_that_has_not_arrived(self):
        left = has({OLD: ["a", "b"], NEW: ["a"]}, [OLD, NEW], manifests=self.manifests)
        self.check((OLD, []), left, has({}))

    def test_only_one_rank_knows_the_manifest(self):
        knows = has({NEW: ["b"]}, [NEW], manifests=self.manifests)
        self.check((NEW, []), has({NEW: ["a"]}, [NEW]), knows)

    def test_rank_0_lacks_the_replicated_state(self):
        left = has({OLD: ["a", "b"], NEW: ["a", "b"]}, [OLD], manifests=self.manifests)
        self.check((OLD, []), left, has({}, [NEW]))

    def test_rank_0_has_no_replicated_state_at_all(self):
        left = has({NEW: ["a", "b"]}, [], manifests={NEW: self.manifests[NEW]})
        self.check((None, [Part("the replicated state", None, None)]), left, has({}, [NEW]))

    def test_both_copies_are_lost(self):
        left = has({OLD: ["a"], NEW: ["a"]}, [OLD, NEW], manifests=self.manifests)
        self.check((None, [part("b", 1, 0)]), left, has({}))

    def test_the_commit_that_lacks_fewest_counts(self):
        left = has({OLD: ["a"], NEW: []}, [OLD, NEW], manifests=self.manifests)
        self.check((None, [part("b", 1, 0)]), left, has({}))

    def test_the_sentence(self):
        self.assertEqual(
            sentence([part(3, 1, 0)]),
            "hvd.elastic: the state of 1 part is lost, because the ranks that had it and its copy have gone: "
            "part 3 (of rank 1 on h1, its copy on rank 0 on h0); continue from the last checkpoint",
        )
        self.assertIn("of 2 parts is lost", sentence([part(3, 1, 0), part(4, 1, None)]))
        self.assertIn("its copy on nowhere", sentence([part(4, 1, None)]))


class Assign(unittest.TestCase):
    def test_tables(self):
        for names, owned, size, expected in (
            ([0, 1, 2], {0: 0, 1: 1, 2: 2}, 3, {0: 0, 1: 1, 2: 2}),
            ([0, 1, 2], {0: 0, 2: 1}, 2, {0: 0, 2: 1, 1: 0}),
            ([0, 1, 2], {0: 0, 2: 1}, 3, {0: 0, 2: 1, 1: 2}),
            ([0, 1, 2, 3], {0: 0, 1: 0, 2: 1, 3: 1}, 3, {0: 0, 2: 1, 1: 0, 3: 2}),
            ([0, 1], {0: 1, 1: 1}, 2, {0: 1, 1: 0}),
            (["b", "a", 1], {}, 2, {1: 0, "a": 1, "b": 0}),
            ([], {}, 2, {}),
            ([0], {0: 2}, 4, {0: 2}),
        ):
            self.assertEqual(assign(names, owned, size), expected, (names, owned, size))

    def test_all_owners_of_up_to_five_parts(self):
        for n, size in itertools.product(range(6), range(1, 5)):
            for owners in itertools.product([None, *range(size)], repeat=n):
                owned = {name: rank for name, rank in enumerate(owners) if rank is not None}
                got = assign(range(n), owned, size)
                loads = [list(got.values()).count(rank) for rank in range(size)]
                self.assertEqual(sum(loads), n)
                self.assertLessEqual(max(loads) - min(loads), 1, (owners, got))
                for rank in range(size):  # a rank gives away no more than it must
                    mine = [name for name in owned if owned[name] == rank]
                    kept = [name for name in mine if got[name] == rank]
                    self.assertGreaterEqual(len(kept), min(len(mine), n // size), (owners, got))


class Transfers(unittest.TestCase):
    def test_nothing_is_sent_to_a_rank_that_has_it(self):
        inventories = [has({NEW: [0, 1]}), has({NEW: [1, 2]}), has({})]
        self.assertEqual(transfers(NEW, {0: 0, 1: 1, 2: 2}, inventories), [(2, 1, 2)])

    def test_the_sends_are_shared(self):
        inventories = [has({NEW: [0, 1, 2]}), has({NEW: [0, 1, 2]}), has({})]
        plan = transfers(NEW, {0: 2, 1: 2, 2: 2}, inventories)
        self.assertEqual(plan, [(0, 0, 2), (1, 1, 2), (2, 0, 2)])

    def test_another_commit_does_not_count(self):
        self.assertEqual(transfers(NEW, {0: 1}, [has({NEW: [0]}), has({OLD: [0]})]), [(0, 0, 1)])
