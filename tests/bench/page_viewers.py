#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many viewers of the operator's status page in one process. Each does what the page in a browser does: it holds a
stream of all jobs, opens one job, and requests its details (and what its tab shows) again and again. A stream that
is refused or ends is opened again, after 1, 2, 4 ... 30 s.

stdin: one line of JSON (port, tokens, jobs: a path for each viewer, tabs: what is requested in turn, every: the
seconds between a viewer's requests). Each further line is answered with one line of JSON: the figures since the
line before. The end of stdin ends the process. Answers are counted, not parsed: the process is to be cheaper than
what it measures.

The lag of streams is measured with jobs whose name is "lag-" and the milliseconds of the monotonic clock at which
they were created: how old they are when their row first arrives at a viewer.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import itertools
import json
import re
import select
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter

ROUNDS = 3  # of --viewers
ANSWER_MS = 100.0  # the median with viewers
SLOWER = 1.2  # a job's start with viewers, of that without
TABS = [
    "",
    "",
    "/ranks",
    "",
    "/log?tail=200",
    "",
    "/ranks",
    "",
    "",
    "/ranks",
]  # a viewer's requests in turn

LAG = re.compile(rb'"name":"lag-(\d+)"')
BUFFER = memoryview(bytearray(256 << 10))
LIMIT_S = 60.0  # of a request


class Connection:
    """One socket of a viewer. It is opened when it is needed, and again when it has ended."""

    def __init__(self, crowd: Crowd, number: int):
        self.crowd, self.number, self.socket = crowd, number, None

    def send(self, path: str) -> None:
        if not self.socket:
            self.socket = socket.create_connection(("127.0.0.1", self.crowd.port), LIMIT_S)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.setblocking(False)
            self.crowd.watch(self)
        token = self.crowd.tokens[self.number]
        self.socket.send(
            f"GET /api/v1/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )

    def close(self) -> None:
        if self.socket:
            self.crowd.unwatch(self)
            self.socket.close()
            self.socket = None


class Stream(Connection):
    def __init__(self, crowd: Crowd, number: int):
        super().__init__(crowd, number)
        self.wait, self.is_open, self.last_lag = 1.0, False, 0

    def start(self) -> None:
        try:
            self.send("watch")
        except OSError:
            self.end("0")

    def read(self) -> None:
        f = self.crowd.figures
        try:
            n = self.socket.recv_into(BUFFER)
        except BlockingIOError:
            return
        except OSError:
            n = 0
        if n == 0:
            self.end("ended")
            return
        f["stream_bytes"] += n
        data = bytes(BUFFER[:n])
        if not self.is_open:
            status = data[9:12].decode()
            if status != "200":
                self.end(status)
                return
            self.is_open, self.wait = True, 0.5
            self.crowd.served[self.number] = time.monotonic() - self.crowd.began
        self.find_lag(data)

    def find_lag(self, data: bytes) -> None:
        at = data.find(b'"lag-')
        if at < 0:
            return
        now = time.monotonic() * 1000
        for mark in map(int, LAG.findall(data, max(0, at - 8))):
            if mark > self.last_lag and mark > 1000 * self.crowd.began:
                self.crowd.figures["lag_ms"].append(now - mark)
            self.last_lag = max(self.last_lag, mark)

    def end(self, why: str) -> None:
        self.close()
        self.is_open = False
        self.crowd.figures["streams_refused"][why] += 1
        self.crowd.later(max(1, self.wait), self.start)
        self.wait = min(30, max(1, 2 * self.wait))


class Requests(Connection):
    """One after the other, in equal distances; a late answer delays the next request."""

    def __init__(self, crowd: Crowd, number: int):
        super().__init__(crowd, number)
        job = crowd.jobs[number % len(crowd.jobs)]
        turns = itertools.cycle(f"jobs/{job}{t}" for t in crowd.tabs)
        self.turns = itertools.chain(["jobs"], itertools.islice(turns, number % len(crowd.tabs), None))
        self.status, self.left = "", 0

    def start(self) -> None:
        path = next(self.turns)
        self.kind = path if path == "jobs" else "/".join(["job", *path.split("/")[4:]]).partition("?")[0]
        self.began = time.monotonic()
        self.status, self.left = "", 0
        try:
            self.send(path)
        except OSError:
            self.done("0")

    def read(self) -> None:
        try:
            n = self.socket.recv_into(BUFFER)
        except BlockingIOError:
            return
        except OSError:
            n = 0
        if n == 0:
            self.close()
            if self.status or time.monotonic() - self.began < self.crowd.every:
                self.done("ended")  # else it was idle
            return
        self.crowd.figures["answer_bytes"] += n
        if not self.status:
            data = bytes(BUFFER[: min(n, 4096)])
            end = data.find(b"\r\n\r\n") + 4
            self.status = data[9:12].decode()
            size = re.search(rb"(?i)content-length: (\d+)", data[:end])
            self.left = end + int(size[1])
        self.left -= n
        if self.left <= 0:
            self.done(self.status)

    def done(self, status: str) -> None:
        now, f = time.monotonic(), self.crowd.figures
        f["statuses"][f"{self.kind} {status}"] += 1
        if status == "200":
            f["ms"].setdefault(self.kind, []).append((now - self.began) * 1000)
        else:
            self.close()
        self.status = ""
        self.crowd.later(max(0.1, self.began + self.crowd.every - now), self.start)


class Crowd:
    def __init__(self, port: int, tokens: list[str], jobs: list[str], tabs: list[str], every: float):
        self.port, self.tokens, self.jobs, self.tabs, self.every = port, tokens, jobs, tabs, every
        self.poll = select.epoll()
        self.open: dict[int, Connection] = {}
        self.due: list = []
        self.order = itertools.count()
        self.served: dict[int, float] = {}
        self.began = time.monotonic()
        self.reset()
        for i in range(len(tokens)):
            self.later(0, Stream(self, i).start)
            self.later(1 + every * i / len(tokens), Requests(self, i).start)

    def reset(self) -> None:
        self.figures: dict = {
            "stream_bytes": 0, "answer_bytes": 0, "lag_ms": [], "ms": {},
            "statuses": Counter(), "streams_refused": Counter(),
        }  # fmt: skip
        self.reset_at, self.cpu_at = time.monotonic(), time.process_time()

    def later(self, seconds: float, act) -> None:
        heapq.heappush(self.due, (time.monotonic() + seconds, next(self.order), act))

    def watch(self, c: Connection) -> None:
        self.open[c.socket.fileno()] = c
        self.poll.register(c.socket, select.EPOLLIN)

    def unwatch(self, c: Connection) -> None:
        self.poll.unregister(c.socket)
        del self.open[c.socket.fileno()]

    def report(self) -> dict:
        f, took = self.figures, time.monotonic() - self.reset_at
        out = {
            "viewers": len(self.tokens),
            "served": sorted(round(s, 3) for s in self.served.values()),
            "cpu": (time.process_time() - self.cpu_at) / took,
            "stream_bytes": f["stream_bytes"] / took,
            "answer_bytes": f["answer_bytes"] / took,
            "lag_ms": spread(f["lag_ms"]),
            "ms": {k: spread(v) for k, v in f["ms"].items()},
            "all_ms": spread([v for each in f["ms"].values() for v in each]),
            "statuses": f["statuses"],
            "streams_refused": f["streams_refused"],
        }
        self.reset()
        return out

    def run(self, control) -> None:
        self.poll.register(control, select.EPOLLIN)
        while True:
            while self.due and self.due[0][0] <= time.monotonic():
                heapq.heappop(self.due)[2]()
            wait = max(0.0, self.due[0][0] - time.monotonic()) if self.due else None
            for fd, _ in self.poll.poll(wait):
                if fd == control.fileno():
                    if not control.readline():
                        return
                    print(json.dumps(self.report()), flush=True)
                elif fd in self.open:
                    self.open[fd].read()


def spread(values: list[float]) -> dict[str, float]:
    if not values:
        return {"n": 0}
    values.sort()
    at = min(len(values) - 1, int(0.99 * len(values)))
    return {
        "n": len(values),
        "median": round(statistics.median(values), 2),
        "p99": round(values[at], 2),
        "max": round(values[-1], 2),
    }


class Child:
    """A process for a bench: it answers a line with a line of JSON, and ends with its stdin."""

    def __init__(self, program: str):
        self.process = subprocess.Popen(
            [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line: str):
        self.send(line)
        return json.loads(self.process.stdout.readline())

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait(60)


class Viewers(Child):
    def __init__(self, port: int, tokens: list[str], jobs: list[str], tabs: list[str], every: float):
        super().__init__(__file__)
        options = {"port": port, "tokens": tokens, "jobs": jobs, "tabs": tabs, "every": every}
        self.send(json.dumps(options))

    def report(self) -> dict:
        return self.ask("")


# --- what the benches report ------------------------------------------------------------------


def served(v: Viewers, n: int) -> dict:
    """Once all viewers have a stream; or what there is after some minutes."""
    end = time.monotonic() + 300
    while len((report := v.report())["served"]) < n and time.monotonic() < end:
        time.sleep(0.5)
    return report


def print_round(r: dict) -> None:
    for name in ("idle", "busy"):
        v = r[name]
        print(
            f"{name}: {v['cpu'] * 100:5.2f}% of a core  {v['asks']:5.1f} answers  {v['patches']:5.1f} status writes"
            f"  {v['requests']:5.1f} API requests  {v['memory']:5.1f} MiB  a job starts in {v['start']:.3f} s"
        )
    p = r["page"]
    print(
        f"  first streams: all {len(r['served'])} after {r['served'][-1]:.1f} s; lag of streams {p['lag_ms']}"
    )
    print(f"  answers {p['all_ms']}, by request: {p['ms']}")
    print(f"  {p['statuses']} refused streams: {p['streams_refused']}")
    print(
        f"  streams {p['stream_bytes'] / 1e6:.2f} MB/s, answers {p['answer_bytes'] / 1e6:.2f} MB/s;"
        f" the viewers themselves {p['cpu'] * 100:.1f}% of a core",
        flush=True,
    )


def verdict(o: argparse.Namespace, rounds: list[dict], again: list[float]) -> int:
    """Prints the medians of all rounds. 1: --check, and a goal is missed."""
    without, viewed = ([t for r in rounds for t in r[k]["starts"]] for k in ("idle", "busy"))
    ratio = statistics.median(viewed) / statistics.median(without)
    ms = statistics.median(r["page"]["all_ms"]["median"] for r in rounds)
    lags = [r["page"]["lag_ms"] for r in rounds]
    lag = (
        statistics.median(x["median"] for x in lags if x["n"])
        if any(x["n"] for x in lags)
        else float("inf")
    )
    cost = statistics.median(100 * (r["busy"]["cpu"] - r["idle"]["cpu"]) for r in rounds)
    bad = sum(n for r in rounds for s, n in r["page"]["statuses"].items() if not s.endswith(" 200"))
    print(
        f"{o.viewers} viewers cost {cost:.1f}% of a core; answers in {ms:.1f} ms (median), streams lag {lag:.0f} ms;"
        f" a job starts in {statistics.median(viewed):.3f} s instead of {statistics.median(without):.3f} s"
        f" (ratio {ratio:.2f}); {bad} requests refused"
    )
    late = again[-1] if len(again) == o.viewers else float("inf")
    half = again[len(again) // 2] if again else float("inf")
    print(
        f"operator started again: half of the viewers had a stream after {half:.1f} s, all after {late:.1f} s"
    )
    return int(o.check and (ms >= ANSWER_MS or ratio > SLOWER or bad > 0))


if __name__ == "__main__":
    with open(0, "rb", buffering=0) as control:  # what a buffer holds, epoll does not report
        Crowd(**json.loads(control.readline())).run(control)
