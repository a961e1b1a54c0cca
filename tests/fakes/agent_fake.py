# SPDX-License-Identifier: Apache-2.0
"""Worker 0's agent as its readers see it (runtime/live/live_query.h): one server that answers for many jobs
and knows their tokens. What it answers, and how it fails to, the test decides."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import struct
import threading
from typing import Callable

PORT = 7171
READER, HUB, VERSION = 12, 8, 3
QUERY, ANSWER = 64, 65
REPORT, RANKS, STACKS = 1, 2, 3  # what a query asks for
STATES = ("Meeting", "Starting", "Training", "Stalled", "Ending")


def text(s: str | bytes) -> bytes:
    raw = s.encode() if isinstance(s, str) else s
    return struct.pack("<H", len(raw)) + raw


def report(state: str = "Training", at: float = 0, **values: object) -> bytes:
    """A packed report; values by the names of its fields, unknown ones as live_report_init has them."""

    def v(name: str, default: object = -1) -> object:
        return values.get(name, default)

    def us(name: str) -> int:
        return int(float(v(name, 0)) * 1e6)

    metrics = values.get("metrics", {})
    missing = values.get("missing", [])
    job = struct.pack(
        "<10q",
        int(at * 1e6),
        0,
        STATES.index(state),
        1,
        v("size", 2),
        2,
        2,
        v("present", 2),
        v("plan_steps", 0),
        v("again_ms"),
    )
    times = struct.pack("<4q", v("meeting_ms", 0), 0, 0, 0)
    rates = struct.pack("<3d", v("steps_per_s"), v("bus"), v("blocked"))
    progress = struct.pack(
        "<5qd3q",
        *(v(n) for n in ("step", "total_steps", "epoch", "total_epochs", "samples", "samples_per_s")),
        0,
        0,
        -1,
    )
    progress += struct.pack("<I", len(metrics))
    progress += b"".join(text(k) + struct.pack("<d", x) for k, x in metrics.items())
    stall = struct.pack("<2q", us("since"), us("seen")) + text(v("tensor", "")) + text(v("op", ""))
    stall += struct.pack(f"<I{len(missing)}I", len(missing), *missing) + struct.pack("<q", v("rank"))
    stall += (
        text(v("host", "")) + struct.pack("<q", v("cause", 0)) + text(v("text", "")) + struct.pack("<q", 0)
    )
    slow = struct.pack("<q", v("slow_rank")) + text(v("slow_host", ""))
    slow += struct.pack(
        "<q2d2q", v("slow_worker", 0), v("cost", 0.0), v("share", 0.0), 0, v("whole_worker", 0)
    )
    parts = {1: job, 2: times, 3: rates, 4: progress, 5: stall, 6: slow}
    return b"HVL1" + b"".join(struct.pack("<HI", i, len(p)) + p for i, p in parts.items())


def rank(number: int, state: int = 1, **values: int) -> bytes:
    """A packed record of a rank (live_worker.c); state: 0 started, 1 in the world, 2 exited."""
    names = ("pid", "age_ms", "steps", "step_ns", "blocked_ns", "bus_bytes", "allreduce_ns", "ready_ns")
    names += ("n_batches", "cpu_ms")
    given = [values.get(n, 0) for n in names]
    fields = [number, given[0], state, *given[1:], values.get("rss_bytes", 0), 0]
    return struct.pack("<HI14q", 1, 8 * len(fields), *fields)


class AgentFake:
    """answers[job name] or default: the bytes of a report, a function that returns them, or a coroutine function
    (agent, reader, writer) that does something else with the connection, of which the hello was read.
    asked[job name] has the number of such queries that were answered. ranks[job name], a list of records, and
    stacks[job name] answer the other queries; queries counts all of them by job name and kind."""

    def __init__(self, address: str, secrets: Callable[[], list[dict]]):
        self.address = address
        self.secrets = secrets
        self.tokens: dict[bytes, tuple[str, bytes]] = {}  # by the hash of the job's id: its name and token
        self.answers: dict[str, object] = {}
        self.default: object = report(step=1, total_steps=10)
        self.ranks: dict[str, list[bytes]] = {}
        self.stacks: dict[str, bytes] = {}
        self.asked: dict[str, int] = {}
        self.queries: dict[tuple[str, int], int] = {}
        self.connections = self.open = self.refused = 0
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(started,), daemon=True)
        self.thread.start()
        started.wait()

    def run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self.loop)
        self.server = self.loop.run_until_complete(
            asyncio.start_server(self.serve, self.address, PORT, backlog=512)
        )
        started.set()
        self.loop.run_forever()

    def stop(self) -> None:
        async def end() -> None:
            self.server.close()
            rest = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            self.loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self.loop)
        self.thread.join(10)

    def learn(self, secret: dict) -> None:
        meta = secret["metadata"]
        owner = next((o["uid"] for o in meta.get("ownerReferences", [])), "")
        name = meta["name"].removesuffix("-token")
        job_id = f"{meta['namespace']}/{name}/{owner}"
        token = bytes.fromhex(base64.b64decode(secret.get("data", {}).get("token", "")).decode())
        self.tokens[hashlib.sha256(job_id.encode()).digest()] = (name, token)

    def find(self, job: bytes) -> tuple[str, bytes]:
        """The name and token of the job with that hash."""
        if job not in self.tokens:
            for s in self.secrets():
                self.learn(s)
        return self.tokens[job]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            await self.talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the reader has left
        finally:
            self.open -= 1
            writer.close()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.hello = hello = await reader.readexactly(80)
        magic, version, role = struct.unpack_from("<4sBB", hello)
        assert (magic, version, role) == (b"HVD1", VERSION, READER), hello[:8]
        assert struct.unpack_from("<I", hello, 44) == (0,), "generation 0"
        name, token = self.find(hello[12:44])
        answer = self.answers.get(name, self.default)
        if asyncio.iscoroutinefunction(answer):
            await answer(self, reader, writer)
            return
        if callable(answer):
            answer = answer()
        head = struct.pack("<4sBBBBI", b"HVD1", VERSION, HUB, 0, 0, 0) + bytes(32)

        def mac(label: bytes) -> bytes:
            return hmac.digest(token, label + hello + head, "sha256")

        writer.write(head + mac(b"S"))
        proof = await reader.readexactly(32)
        if not hmac.compare_digest(proof, mac(b"C")):
            self.refused += 1
            return
        header = await reader.readexactly(8)
        n, kind = struct.unpack("<IB3x", header)
        query = await reader.readexactly(n)
        tag = await reader.readexactly(16)
        wanted = hmac.digest(mac(b"KC"), struct.pack("<Q", 0) + header + query, "sha256")[:16]
        assert (kind, tag) == (QUERY, wanted), (kind, query)
        what, first, most = struct.unpack("<HII", query)
        self.queries[name, what] = self.queries.get((name, what), 0) + 1
        if what == RANKS:
            records = self.ranks.get(name, [])[first : first + most]
            answer = struct.pack("<I", len(records))
            answer += b"".join(struct.pack("<I", len(r)) + r for r in records)
        elif what == STACKS:
            answer = self.stacks.get(name, b"")
        assert what in (REPORT, RANKS, STACKS), query
        body = struct.pack("<I", 0) + answer
        header = struct.pack("<IB3x", len(body), ANSWER)
        signed = hashlib.sha256(body).digest() if len(body) > 64 else body
        tag = hmac.digest(mac(b"KS"), struct.pack("<Q", 0) + header + signed, "sha256")[:16]
        self.asked[name] = self.asked.get(name, 0) + (what == REPORT)
        writer.write(header + body + tag)
        await writer.drain()
