# SPDX-License-Identifier: Apache-2.0
"""The operator asks the agents of running jobs for their progress. Part of fake_test.py."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import struct
import subprocess
import time

from agent_fake import AgentFake, report
from api import expect, wait
from fake_secrets import not_in_memory
from fake_world import BIN, OPEN, World, fetch, free_port, launched, suite

FAST = [*OPEN, "--progress-interval", "200ms"]


class Asked(World):
    """With agents at an address of this test alone, where all pods are."""

    def __init__(self, *args, extra: list[str] | None = None, answers: dict | None = None, **kw):
        self.address = f"127.{random.randrange(1, 250)}.{os.getpid() % 250 + 1}.{random.randrange(1, 250)}"
        self.agent = None
        super().__init__(*args, extra=FAST if extra is None else extra, **kw)
        self.agent = AgentFake(self.address, lambda: list(self.fake.objects["secrets"].values()))
        self.agent.answers = answers or {}

    def __exit__(self, *args):
        super().__exit__(*args)
        self.agent.stop()

    def run_pods(self, n: int = 2, name: str = "j0") -> None:
        self.wait_pods(n, name)
        for i in range(n):
            self.set_pod(f"{name}-worker-{i}", phase="Running", podIP=self.address)

    def status(self, name: str = "j0") -> dict:
        return self.fake.objects["horovodjobs"][f"ns/{name}"].get("status", {})

    def progress(self, name: str = "j0") -> dict:
        return self.status(name).get("progress", {})

    def condition(self, type_: str, name: str = "j0") -> dict:
        return next((c for c in self.status(name).get("conditions", []) if c["type"] == type_), {})

    def events(self, *reasons: str) -> list[tuple[str, str, str]]:
        found = list(self.fake.objects["events"].values())
        return [(e["type"], e["reason"], e["message"]) for e in found if e["reason"] in reasons]

    def answer(self, name: str = "j0", **values: object) -> None:
        self.agent.answers[name] = report(at=time.time(), **values)

    def asks(self) -> dict[str, int]:
        text = fetch(self.port, "/metrics")[1]
        rows = [r for r in text.splitlines() if r.startswith("hvd_operator_asks_total")]
        return {r.split('"')[1]: int(r.split()[-1]) for r in rows}


def with_metrics(**kw) -> Asked:
    port = free_port()
    w = Asked(port=port, **kw)
    w.port = port
    return w


@suite.test
def a_running_job_shows_the_progress_that_its_agent_reports() -> None:
    with Asked() as w:
        values = {
            "step": 1200,
            "total_steps": 5000,
            "epoch": 2,
            "steps_per_s": 2.5,
            "samples_per_s": 319.98,
        }
        w.answer(**values, samples=153600, bus=1.23456e9, blocked=0.123, metrics={"loss": 0.25, "é": 1e-9})
        w.serves_job()
        wait("progress", lambda: w.progress())
        p = w.progress()
        eta, at = p.pop("eta"), p.pop("updateTime")
        left = [time.mktime(time.strptime(t, "%Y-%m-%dT%H:%M:%SZ")) for t in (eta, at)]
        expect(1500 <= left[0] - left[1] <= 1600, "the end in 1520 s", (eta, at))
        expect(
            p
            == {
                "step": 1200,
                "totalSteps": 5000,
                "epoch": 2,
                "percentage": 24,
                "summary": "1200/5000 (24%)",
                "samples": 153600,
                "stepsPerSecond": 2.5,
                "samplesPerSecond": 320,
                "busBandwidth": 1230000000,
                "exposedCommunication": 0.12,
                "metrics": {"loss": "0.25", "é": "1e-09"},
                "remaining": p["remaining"],
            },
            "as reported, rounded",
            p,
        )
        expect(p["remaining"] in ("25m", "26m"), "the rest as text", p["remaining"])
        w.answer(step=4999, total_steps=5000)
        wait("the next one", lambda: w.progress().get("step") == 4999)
        for i in range(2):
            w.set_pod(f"j0-worker-{i}", phase="Succeeded")
        wait("Succeeded", lambda: w.state() == "Succeeded")
        expect(w.progress()["step"] == 4999, "it stays", w.progress())
        n, writes = w.agent.connections, w.fake.count("PATCH", "horovodjobs")
        w.job_runs("j1")  # which is asked for a while
        wait("the other job is asked", lambda: w.agent.asked.get("j1", 0) >= 5)
        expect(w.agent.connections - n <= w.agent.asked["j1"] + 1, "a finished job is not asked")
        mine = [q for m, p, q in w.fake.requests if m == "PATCH" and p == "horovodjobs"]
        expect(len(mine) - writes <= 8, "nor written", len(mine) - writes)


@suite.test
def a_job_that_has_just_started_is_asked_before_its_turn() -> None:
    with Asked(extra=[*OPEN, "--progress-interval", "1h"]) as w:
        w.serves_job()
        for step in (1, 2, 3):
            w.answer(step=step)
            wait(f"step {step}", lambda step=step: w.progress().get("step") == step)


@suite.test
def a_job_whose_report_wants_it_is_asked_again_before_its_turn() -> None:
    with Asked(extra=[*OPEN, "--progress-interval", "1h"]) as w:
        w.answer(step=1, again_ms=300)
        w.serves_job()
        wait("the first three, and more", lambda: w.agent.asked.get("j0", 0) >= 5)
        step = w.progress()["step"]
        w.answer(step=2, again_ms=300, state="Stalled", since=1, seen=1, rank=1, cause=1, text="rank 1")
        wait("Stalled", lambda: w.condition("Stalled").get("reason") == "Stopped")
        w.answer(step=3, again_ms=300, state="Stalled", since=1, seen=1, rank=1, cause=1, text="rank 1")
        n = w.agent.asked["j0"]
        wait("two more", lambda: w.agent.asked["j0"] >= n + 2)
        expect((step, w.progress()["step"]) == (1, 2), "progress is not written for them", w.progress())


@suite.test
def a_stall_and_a_slow_rank_become_conditions_with_one_event_each() -> None:
    with Asked() as w:
        w.answer(step=1)
        w.serves_job()
        wait("asked", lambda: w.progress())
        expect(not w.condition("Stalled") and not w.condition("Straggling"), "not before", w.status())
        since = time.time() - 60
        text = "rank 1 on j0-worker-1 is stopped\n\xff"
        w.answer(
            step=1, state="Stalled", since=since, seen=since, rank=1, cause=1, text=text.encode("latin1")
        )
        wait("Stalled", lambda: w.condition("Stalled").get("status") == "True")
        c = w.condition("Stalled")
        expect((c["reason"], c["message"]) == ("Stopped", "rank 1 on j0-worker-1 is stopped??"), "why", c)
        n = w.agent.asked["j0"]
        wait("more answers", lambda: w.agent.asked["j0"] > n + 3)
        expect(
            w.events("JobStalled") == [("Warning", "JobStalled", c["message"])],
            "one",
            w.events("JobStalled"),
        )
        w.answer(step=2, slow_rank=1, slow_worker=1, slow_host="h", cost=0.034, share=0.27)
        wait("Straggling", lambda: w.condition("Straggling").get("status") == "True")
        c = w.condition("Straggling")
        slow = "rank 1 on h delays all other ranks by about 30 ms (30%) of each step"
        expect((c["reason"], c["message"]) == ("RankSlow", slow), "who", c)
        expect(w.condition("Stalled")["reason"] == "StallEnded", "it has ended", w.condition("Stalled"))
        w.answer(step=3)
        wait("the end", lambda: w.condition("Straggling")["status"] == "False")
        found = w.events("JobStalled", "JobStraggling", "StallEnded", "StragglingEnded")
        expect(len(found) == 4, "one Event each", found)


@suite.test
def a_new_operator_continues_the_progress_of_a_slow_job() -> None:
    """Its status has the verdict already, so that alone is no reason to write."""
    slow = {"slow_rank": 1, "slow_worker": 1, "slow_host": "h", "cost": 0.034, "share": 0.27}
    with Asked() as w:
        w.answer(step=1, **slow)
        w.serves_job()
        wait("Straggling", lambda: w.condition("Straggling").get("status") == "True")
        w.operator.stop()
        w.operator = w.begin()
        w.answer(step=2, **slow)
        wait("its progress", lambda: w.progress().get("step") == 2)
        n, writes = w.agent.asked["j0"], w.fake.count("PATCH", "horovodjobs")
        wait("ten more answers", lambda: w.agent.asked["j0"] > n + 10)
        expect(w.fake.count("PATCH", "horovodjobs") == writes, "no further write")


@suite.test
def agents_that_do_not_meet_are_named() -> None:
    """Nothing else changes meanwhile that could make the operator look at the job."""
    with Asked() as w:
        w.answer(state="Meeting", present=1, meeting_ms=5000)
        w.serves_job()
        wait("three answers", lambda: w.agent.asked.get("j0", 0) >= 3)
        expect("agents" not in w.status()["message"], "not at once", w.status())
        w.answer(state="Meeting", present=1, meeting_ms=30000)
        wait("the message", lambda: "; only 1 of 2 agents have reached" in w.status()["message"])
        w.answer(state="Training", meeting_ms=30000)
        wait("the end", lambda: w.status()["message"] == "all 2 workers run")


@suite.test
def equal_progress_is_written_once() -> None:
    with Asked() as w:
        w.answer(step=7, total_steps=9, steps_per_s=0.001)
        w.serves_job()
        wait("progress", lambda: w.progress())
        n, writes = w.agent.asked["j0"], w.fake.count("PATCH", "horovodjobs")
        wait("ten more answers", lambda: w.agent.asked["j0"] > n + 10)
        expect(w.fake.count("PATCH", "horovodjobs") == writes, "no further write")


@suite.test
def an_old_crd_without_progress_stops_the_writes() -> None:
    def old(fake) -> None:
        fake.pruned = ("progress",)

    with Asked(before=old) as w:
        step = iter(range(1, 100000))

        w.agent.answers["j0"] = lambda: report(step=next(step))
        w.serves_job()
        wait("it is reported", lambda: "does not keep the status as sent" in w.log())
        n, writes = w.agent.connections, w.fake.count("PATCH", "horovodjobs")
        wait("ten more answers", lambda: w.agent.connections > n + 10)
        expect(w.fake.count("PATCH", "horovodjobs") <= writes + 1, "no further write")
        expect(w.log().count("does not keep the status as sent") == 1, "reported once", w.log())


@suite.test
def progress_alone_is_written_only_in_the_job_s_turn() -> None:
    """With one request a second one of 15 turns, whatever else makes the operator look at the job."""
    step = iter(range(1, 100000))
    with Asked(extra=[*FAST, "--kube-api-qps", "1"]) as w:
        w.agent.answers["j0"] = lambda: report(step=next(step))
        w.serves_job()
        wait("progress", lambda: w.progress())
        n, writes = w.agent.asked["j0"], w.fake.count("PATCH", "horovodjobs")
        for i in range(1, 10):
            wait("five more answers", lambda i=i: w.agent.asked["j0"] >= n + 5 * i)
            job = w.get("horovodjobs", "j0")
            w.fake.put("horovodjobs", job)  # an event, as after a list
        turns = (w.agent.asked["j0"] - n) / 15
        written = w.fake.count("PATCH", "horovodjobs") - writes
        expect(1 <= written <= turns + 2, f"{turns:.1f} turns", written)


# --- agents that do not answer ---------------------------------------------------------------
async def silent(agent, reader, writer) -> None:
    await reader.read(-1)  # until the operator closes


async def garbage(agent, reader, writer) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n" + bytes(100))
    await writer.drain()


async def closing(agent, reader, writer) -> None:
    return


def wrong_answer(kind: str):
    """Right in all but the report."""
    body = {
        "huge": b"HVL1" + bytes(1 << 20),
        "cut": report(step=1)[:-3],
        "no report": b"?" * 100,
        "unit": b"",
    }[kind]
    return body


@suite.test
def agents_that_do_not_answer_delay_nothing() -> None:
    kinds = {
        "silent": silent,
        "garbage": garbage,
        "closing": closing,
        "huge": wrong_answer("huge"),
        "cut": wrong_answer("cut"),
        "none": wrong_answer("no report"),
    }
    with with_metrics(jobs=0) as w:
        w.agent.answers = dict(kinds)
        for name in kinds:
            w.job_runs(name)
        wait("all are asked", lambda: w.agent.connections >= len(kinds))
        begin = time.monotonic()
        w.job_runs("good")
        took = time.monotonic() - begin
        expect(took < 2.5, "a job runs beside them, long before the deadline of an ask", took)
        wait("it is asked, too", lambda: w.progress("good"))
        wait(
            "too much is not received", lambda: 'job=ns/huge attempt=1 cause="the answer is not' in w.log()
        )
        wait("each result is counted", lambda: w.asks()["unreachable"] >= 3 and w.asks()["garbage"] >= 4)
        for name in kinds:
            expect(
                not w.progress(name) and w.state(name) == "Running", f"{name}: no progress", w.status(name)
            )
        fds = len(os.listdir(f"/proc/{w.operator.process.pid}/fd"))
        expect(fds < 60, "connections are closed", fds)


@suite.test
def a_replaced_token_is_read_again_once() -> None:
    with with_metrics() as w:
        w.serves_job()
        wait("progress", lambda: w.progress())
        reads = [q for m, p, q in w.fake.requests if (m, p) == ("GET", "secrets")]
        expect(len(reads) == 1, "the Secret is read once", reads)
        secret = w.get("secrets", "j0-token")
        secret["data"]["token"] = base64.b64encode(b"1" * 64 + b"\n").decode()
        w.agent.tokens.clear()
        w.fake.put("secrets", secret)
        n = w.agent.asked["j0"]
        wait("answers again", lambda: w.agent.asked["j0"] > n)
        expect(w.asks()["refused"] == 1, "one refusal", w.asks())
        expect(w.fake.count("GET", "secrets") == 2, "and one more read")


@suite.test
def an_agent_without_the_token_learns_nothing() -> None:
    """It gets no proof, and is asked ever less often."""
    proofs = []

    async def impostor(agent, reader, writer) -> None:
        writer.write(struct.pack("<4sBBBBI", b"HVD1", 3, 8, 0, 0, 0) + bytes(64))
        proofs.append(await reader.read(200))

    with with_metrics() as w:
        w.agent.answers["j0"] = impostor
        w.serves_job()
        wait("asked twice", lambda: len(proofs) >= 2)
        expect(set(proofs) == {bytes(32)}, "zeros, which refuse it", proofs)
        wait("the Secret was read again once", lambda: w.fake.count("GET", "secrets") == 2)
        wait("refused again", lambda: w.asks()["refused"] >= 3)
        expect(w.fake.count("GET", "secrets") == 2, "and not each time")


@suite.test
def without_the_right_to_read_secrets_all_else_works() -> None:
    def hook(w, h, method, plural, query):
        if (method, plural) != ("GET", "secrets"):
            return False
        w.fake.answer(h, 403, json.dumps({"code": 403, "message": "no"}))
        return True

    port = free_port()
    with Asked(hook, port=port) as w:
        w.port = port
        w.serves_job()
        wait("tried", lambda: w.asks()["secret"] >= 2)
        expect(w.agent.connections == 0, "no agent is asked without a token")
        w.job_runs("j1")


@suite.test
def jobs_without_a_hub_and_an_interval_of_0_ask_nothing() -> None:
    with Asked(jobs=0) as w:
        w.fake.put("horovodjobs", launched("l"))
        w.wait_pods(name="l")
        for name in ("l-worker-0", "l-worker-1", "l-launcher-0"):
            wait(name, lambda n=name: f"ns/{n}" in w.fake.objects["pods"])
            w.set_pod(name, phase="Running", podIP=w.address)
        w.job_runs("j1")
        wait("the other one is asked", lambda: w.agent.asked.get("j1", 0) >= 3)
        expect(set(w.agent.asked) == {"j1"} and not w.progress("l"), "only that", w.agent.asked)
    with Asked(extra=[*OPEN, "--progress-interval", "0"]) as w:
        w.serves_job()
        w.job_runs("j1")
        expect(w.agent.connections == 0, "nothing is asked")


@suite.test
def metrics_count_questions_and_reports() -> None:
    with with_metrics(extra=[*FAST, "--job-metrics"]) as w:
        since = time.time() - 60
        w.answer(step=5, total_steps=20, steps_per_s=1.5, since=since, seen=since, text="t")
        w.serves_job()
        wait("stalled", lambda: w.condition("Stalled"))
        text = fetch(w.port, "/metrics")[1].splitlines()
        for line in (
            "hvd_operator_jobs_reporting 1",
            "hvd_operator_jobs_stalled 1",
            "hvd_operator_jobs_straggling 0",
            'hvd_job_progress_ratio{namespace="ns",job="j0"} 0.25',
            'hvd_job_steps_per_second{namespace="ns",job="j0"} 1.5',
            'hvd_job_stalled{namespace="ns",job="j0"} 1',
        ):
            expect(line in text, line, [r for r in text if "hvd_job" in r or "jobs_" in r])


@suite.test
def tokens_leave_no_trace() -> None:
    with Asked(extra=[*FAST, "--log-level", "debug"]) as w:
        w.serves_job()
        wait("progress", lambda: w.progress())
        token = base64.b64decode(w.get("secrets", "j0-token")["data"]["token"]).decode().strip()
        expect(token not in w.log(), "not in the log")
        not_in_memory(w, text=token[:40])
        for i in range(2):
            w.set_pod(f"j0-worker-{i}", phase="Succeeded")
        wait("Succeeded", lambda: w.state() == "Succeeded")
        not_in_memory(w, text=token[:40], binary=bytes.fromhex(token)[8:])


@suite.test
def a_real_agent_answers() -> None:
    """Worker 0's own hvd-agent; its port is not the usual one, which other tests use, so a relay connects both."""

    async def relay(agent, reader, writer) -> None:
        inside, outside = await asyncio.open_connection("127.0.0.1", port)
        outside.write(agent.hello)

        async def carry(a, b) -> None:
            while data := await a.read(4096):
                b.write(data)
            b.close()

        await asyncio.gather(carry(reader, outside), carry(inside, writer))

    port = free_port()
    with with_metrics() as w:
        w.agent.default = relay
        w.wait_pods()
        (w.dir / "token").write_bytes(base64.b64decode(w.get("secrets", "j0-token")["data"]["token"]))
        (w.dir / "token").chmod(0o600)
        pod = w.get("pods", "j0-worker-0")
        env = {e["name"]: e["value"] for e in pod["spec"]["containers"][0]["env"]}
        env |= {"HVD_CHECKIN_ADDR": "127.0.0.1", "HVD_CHECKIN_PORT": str(port), "HVD_DIR": str(w.dir)}
        env |= {"HVD_TOKEN_FILE": str(w.dir / "token"), "HVD_TERMINATION_LOG": str(w.dir / "end")}
        env |= {"PATH": os.environ["PATH"], "TMPDIR": str(w.dir)}
        env.pop("HVD_WORLD_FILE")
        with (w.dir / "agent").open("w") as log:
            agent = subprocess.Popen(
                [BIN / "hvd-agent", "run", "--", "true"], env=env, stdout=log, stderr=log
            )
        try:
            w.serves_job()
            wait("it answers", lambda: w.asks()["ok"] >= 2 or agent.poll() is not None)
            expect(
                agent.poll() is None, "the agent waits for the other worker", (w.dir / "agent").read_text()
            )
            expect(
                "hvd_operator_jobs_reporting 1" in fetch(w.port, "/metrics")[1],
                "its report is read",
                w.asks(),
            )
        finally:
            agent.terminate()
            agent.wait()
