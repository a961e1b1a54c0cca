# SPDX-License-Identifier: Apache-2.0
"""The timeline of whole ranks: a schema check of the file, all ranks in one, clocks that differ."""

import collections
import json
import os
import re
import subprocess
import tempfile
import unittest

from job import bare_ranks, best_of

COLLECTIVES = "ALLREDUCE|ALLGATHER|BROADCAST|BARRIER|ALLTOALL|REDUCESCATTER|REDUCE|GATHER|JOIN"
OUTER = re.compile(rf"(NEGOTIATE_)?({COLLECTIVES})")
INNER = re.compile(rf"ALLOCATE_OUTPUT|CPU_({COLLECTIVES})")


class Span:
    def __init__(self, name, begin):
        self.name, self.begin, self.end, self.args, self.inner = name, begin, None, {}, []


class Timeline:
    """A timeline that follows the schema; anything else is an AssertionError."""

    def __init__(self, text):
        self.records = json.loads(text)
        self.names, self.ranks = {}, {}
        self.spans = collections.defaultdict(list)  # by (tensor, rank): those of the outer level
        self.ticks = collections.Counter()
        self.cycles = self.dropped = 0
        self._open = collections.defaultdict(list)
        last = collections.defaultdict(float)
        head = self.records[0]
        assert head["ph"] == "M" and head["args"]["start_time_since_epoch_in_micros"] > 1.6e15, head
        for r in self.records[1:]:
            if r["ph"] == "M":
                self.meta(r)
                continue
            place = r["pid"], r["tid"]
            assert r["ts"] >= 0 and isinstance(r["tid"], int), r
            if r["pid"] != 0:
                assert r["ts"] >= last[place], f"time goes back: {r}"
                last[place] = r["ts"]
            getattr(self, {"B": "begin", "E": "end", "X": "tick", "i": "instant"}[r["ph"]])(place, r)
        assert not any(self._open.values()), "spans that never end"

    def meta(self, r):
        if r["name"] == "process_name":
            assert r["pid"] not in self.names, r
            self.names[r["pid"]] = r["args"]["name"]
        elif r["name"] == "thread_name":
            self.ranks[r["pid"], r["tid"]] = r["args"]["name"]
        else:
            assert r["name"] == "process_sort_index", r

    def begin(self, place, r):
        assert place[0] in self.names and place in self.ranks, f"before its name: {r}"
        stack = self._open[place]
        span = Span(r["name"], r["ts"])
        assert (INNER if stack else OUTER).fullmatch(span.name), r
        assert len(stack) < 2, r
        if stack:
            assert not stack[0].name.startswith("NEGOTIATE"), r
            stack[0].inner.append(span)
        else:
            self.spans[self.names[place[0]], place[1]].append(span)
        stack.append(span)

    def end(self, place, r):
        span = self._open[place].pop()
        span.end, span.args = r["ts"], r.get("args", {})

    def tick(self, place, r):
        assert r["dur"] == 0 and r["name"].isdigit(), r
        assert self._open[place][-1].name.startswith("NEGOTIATE"), r
        self.ticks[self.names[place[0]]] += 1

    def instant(self, place, r):
        assert place[0] == 0 and r["name"] in ("CYCLE_START", "DROPPED"), r
        if r["name"] == "CYCLE_START":
            self.cycles += 1
        else:
            self.dropped += r["args"]["events"]


class TimelineTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "timeline.json")

    def ranks(self, n, **how):
        return Timeline(self.text_of_ranks(n, **how))

    def all_ranks(self, n, **how):
        """With what all ranks recorded; rank 0 waits a second for the other ranks' last events."""
        got = []

        def attempt():
            got[:] = [self.ranks(n, HVD_TIMELINE_ALL="1", **how)]
            return {rank for name, rank in got[0].spans if name == "end"} != set(range(n))

        best_of(1, attempt)
        return got[0]

    def text_of_ranks(self, n, mode="steps", exits=0, **how):
        """The file of n ranks; how: options of bare_ranks()."""
        for ended in bare_ranks(n, "timeline.py", mode, **{"HOROVOD_TIMELINE": self.path, **how}):
            self.assertEqual(ended.code, exits, ended)
        with open(self.path, encoding="utf-8") as f:
            return f.read()

    def test_rank_0_shows_each_tensor_s_phases(self):
        t = self.ranks(2, HOROVOD_TIMELINE_MARK_CYCLES="1")
        names = {f"grad/{k}" for k in range(4)} | {'odd "name" \u00fc\n', "end"}
        self.assertEqual({name for name, _ in t.spans}, names)
        self.assertEqual({rank for _, rank in t.spans}, {0})
        for k in range(4):
            spans = t.spans[f"grad/{k}", 0]
            self.assertEqual([s.name for s in spans], ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"] * 50)
            for s in spans[1::2]:
                self.assertEqual([i.name for i in s.inner], ["CPU_ALLREDUCE"])
                self.assertEqual(s.args, {"dtype": "float32", "bytes": 4 * (100 * k + 1)})
        for s in t.spans['odd "name" \u00fc\n', 0][1::2]:
            self.assertEqual([i.name for i in s.inner], ["ALLOCATE_OUTPUT", "CPU_ALLGATHER"])
        self.assertGreaterEqual(t.ticks["grad/0"], 2)
        self.assertGreaterEqual(t.cycles, 50)
        self.assertEqual(t.dropped, 0)

    def overlapping(self, n, **how):
        """A timeline of all ranks whose clocks were synchronised to 20 ms, which a busy machine may prevent."""
        got = []

        def gap_us():
            """How long after the first rank has left a barrier the last one enters it."""
            got[:] = [self.all_ranks(n, **how)]
            spans = [next(s for s in got[0].spans["end", r] if s.name == "BARRIER") for r in range(n)]
            return max(s.begin for s in spans) - min(s.end for s in spans)

        self.assertLess(best_of(20e3, gap_us, tries=3), 20e3)
        return got[0]

    def test_all_ranks_are_in_one_file(self):
        t = self.overlapping(3)
        self.assertEqual({rank for _, rank in t.spans}, {0, 1, 2})
        self.assertEqual(t.cycles, 0)

    def test_clocks_that_differ_are_set_right(self):
        ahead = ["unshare", "--time", "--fork", "--monotonic", "5000", "--"]
        if subprocess.run([*ahead, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
            raise unittest.SkipTest("time namespaces need root")
        t = self.overlapping(2, prefix={1: ahead})
        whole = max(s.end for spans in t.spans.values() for s in spans)
        self.assertLess(whole, 60e6, "5,000 s of difference are in the file")

    def test_python_starts_and_stops_it(self):
        t = self.ranks(2, mode="python", HOROVOD_TIMELINE="DYNAMIC", HOROVOD_TIMELINE_HERE=self.path)
        self.assertEqual({name for name, _ in t.spans}, {"end"})
        self.assertGreaterEqual(t.cycles, 1)

    def test_what_a_killed_rank_has_written_is_valid(self):
        records = json.loads(self.text_of_ranks(1, mode="killed", exits=-9))
        self.assertIn("start_time_since_epoch_in_micros", records[0]["args"])


if __name__ == "__main__":
    unittest.main()
