# SPDX-License-Identifier: Apache-2.0
"""For fake_test.py: .status.goodput against an audit that counts second by second what the pods' events show."""

from __future__ import annotations

import random
import re
import time
from datetime import datetime, timezone

from api import expect, wait
from fake_world import World, fetch, free_port, suite

GPUS = 4


def stamp(s: int) -> str:
    return datetime.fromtimestamp(s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str) -> int:
    return int(datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp())


def pod_status(made: int, bound: int = 0, run: int = 0, end: int = 0, code: int = 0) -> dict:
    """The status of a pod at which these events have happened; 0: not yet."""
    out: dict = {"phase": "Pending", "conditions": [], "containerStatuses": []}
    if bound:
        out["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(bound)}]
    if run:
        out["phase"] = "Running"
        state: dict = {"running": {"startedAt": stamp(run)}}
        if end:
            out["phase"] = "Failed" if code else "Succeeded"
            state = {
                "terminated": {"exitCode": code, "startedAt": stamp(run), "finishedAt": stamp(end)},
            }
        out["containerStatuses"] = [{"name": "c", "state": state}]
    return out


def show(w: World, name: str, made: int, **events: int) -> None:
    """The pod as it is after these events."""
    pod = w.get("pods", name)
    pod["metadata"]["creationTimestamp"] = stamp(made)
    if events.get("bound"):
        pod["spec"]["nodeName"] = "n"
    w.fake.put("pods", pod | {"status": pod_status(made, **events)})


def job(name: str, workers: int, made: int, **policy: object) -> dict:
    out = World.job(
        name,
        containers=[
            {"name": "c", "image": "i", "command": ["x"], "resources": {"limits": {"nvidia.com/gpu": GPUS}}}
        ],
    )
    out["metadata"]["creationTimestamp"] = stamp(made)
    out["spec"]["replicaSpecs"]["Worker"]["replicas"] = workers
    out["spec"]["runPolicy"] = policy
    return out


def goodput(w: World, name: str = "j0") -> dict:
    return w.get("horovodjobs", name).get("status", {}).get("goodput", {})


def audit(pods: list[dict[str, int]], start: int, end: int) -> tuple[dict[str, int], dict[str, int]]:
    """Seconds and GPU seconds by part of a job that did not restart."""
    parts: dict[str, int] = {}
    gpus: dict[str, int] = {}
    last = max(p["end"] for p in pods)
    for s in range(start, end):
        if s >= last:
            part = "down"
        elif all(p["run"] <= s for p in pods):
            part = "training"
        elif all(p["bound"] <= s for p in pods):
            part = "pulling"
        else:
            part = "queued"
        parts[part] = parts.get(part, 0) + 1
        held = GPUS * sum(p["bound"] <= s < p["end"] for p in pods)
        if held:
            gpus[part] = gpus.get(part, 0) + held
    return parts, gpus


def adds_up(g: dict) -> None:
    total = seconds(g["time"]) - seconds(g["startTime"])
    expect(sum(g["seconds"].values()) == total, "the parts add up to the time", g)


def history(r: random.Random, n: int, start: int) -> list[dict[str, int]]:
    pods = []
    for _ in range(n):
        made = start + r.randrange(3)
        bound = made + r.randrange(60)
        pods.append({"made": made, "bound": bound, "run": bound + r.randrange(60)})
    for p in pods:
        p["end"] = max(q["run"] for q in pods) + 300 + r.randrange(100)
    return pods


@suite.test
def goodput_is_what_an_audit_of_the_pods_events_counts() -> None:
    """However the watch shows the events, in which order of pods, and with operators that come and go."""
    r = random.Random(26)
    start = int(time.time()) - 1000
    jobs = {f"j{i}": history(r, 1 + r.randrange(3), start) for i in range(6)}

    def before(fake) -> None:
        for name, pods in jobs.items():
            fake.put("horovodjobs", job(name, len(pods), start))

    with World(jobs=0, before=before) as w:
        for name, pods in jobs.items():
            w.wait_pods(len(pods), name)
        todo = [(name, i, ["bound", "run", "end"]) for name, pods in jobs.items() for i in range(len(pods))]
        while todo:
            name, i, events = turn = r.choice(todo)
            n = 1 + r.randrange(len(events))  # some are seen only together with the next one
            del events[:n]
            known = [k for k in ("bound", "run", "end") if k not in events]
            if "end" in known and any(t[0] == name and "run" in t[2] for t in todo):
                events.insert(0, "end")  # it ends when all have run
                known.remove("end")
            pod = jobs[name][i]
            show(w, f"{name}-worker-{i}", pod["made"], **{k: pod[k] for k in known})
            if not events:
                todo.remove(turn)
            if r.randrange(8) == 0:
                w.operator.kill()
                w.operator.process.wait(60)
                w.operator = w.begin()
        for name, pods in jobs.items():
            wait(f"{name} has succeeded", lambda name=name: w.state(name) == "Succeeded")
            status = w.get("horovodjobs", name)["status"]
            g = status["goodput"]
            adds_up(g)
            expect(seconds(g["startTime"]) == start, "from its creation", g)
            expect(g["time"] == status["completionTime"], "until its end", status)
            expect("current" not in g, "it has ended", g)
            parts, gpus = audit(pods, start, seconds(g["time"]))
            expect(g["seconds"] == parts, f"{name}: the audit has", parts, g, pods)
            expect(g["gpuSeconds"] == gpus, f"{name}: the audit has", gpus, g, pods)


def is_about(w: World, reason: str) -> list[dict]:
    return [e for e in w.fake.objects["events"].values() if e["reason"] == reason]


@suite.test
def goodput_of_a_job_that_restarts_has_the_cause_of_its_losses() -> None:
    port = free_port()
    start = int(time.time()) - 1000
    first = {"made": start + 1, "bound": start + 100, "run": start + 110}

    def before(fake) -> None:
        fake.put("horovodjobs", job("j0", 2, start, backoffLimit=1))

    with World(jobs=0, before=before, port=port) as w:
        w.wait_pods()
        refused = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        }
        w.set_pod("j0-worker-0", phase="Pending", conditions=[refused])
        wait("the reason", lambda: goodput(w).get("current", {}).get("reason"))
        for i in range(2):
            show(w, f"j0-worker-{i}", **first)
        wait("it runs", lambda: w.state() == "Running")
        old = w.get("pods", "j0-worker-0")["metadata"]["uid"]
        show(w, "j0-worker-0", **first, end=start + 900, code=3)
        show(w, "j0-worker-1", **first, end=start + 905, code=1)
        wait("it restarts", lambda: w.state() == "Restarting")
        adds_up(goodput(w))
        w.operator.kill()
        w.operator = w.begin()
        wait(
            "other pods",
            lambda: (
                "ns/j0-worker-0" in w.fake.objects["pods"]
                and w.get("pods", "j0-worker-0")["metadata"]["uid"] != old
            ),
        )
        w.wait_pods()
        now = int(time.time())
        for i in range(2):
            show(w, f"j0-worker-{i}", made=now, bound=now, run=now)
        wait("it runs again", lambda: w.state() == "Running")
        for i in range(2):
            show(w, f"j0-worker-{i}", made=now, bound=now, run=now, end=now + 1)
        wait("it has succeeded", lambda: w.state() == "Succeeded")
        g = goodput(w)
        adds_up(g)
        late = g["seconds"]["queued"] - 100  # the fake's pods have no time until they are shown
        expect(0 <= late <= 60 and g["seconds"]["pulling"] == 10, "the pods' times", g)
        down = now - (start + 900) - late
        after = seconds(g["time"]) - now
        expect(down <= g["seconds"]["down"] <= down + after, f"down for {down} s", g)
        expect(790 <= g["seconds"]["training"] <= 790 + after, "training", g)
        losses = {(x["part"], x["reason"]): x for x in g["losses"]}
        expect(losses["queued", "insufficient nvidia.com/gpu"]["seconds"] == 100, "why it was queued", g)
        expect(losses["down", "WorkerFailed"]["seconds"] == down, "why it was down", g)
        expect(losses["down", "WorkerFailed"]["count"] == 1, "once", g)
        held = GPUS * (790 * 2 + 10 * 2 + 5)
        expect(held <= sum(g["gpuSeconds"].values()) <= held + 2 * GPUS * after, "GPUs", g, held)
        events = is_about(w, "Goodput")
        expect(len(events) == 1 and events[0]["type"] == "Normal", "one Event", events)
        text = events[0]["message"]
        expect(
            re.match(r"of \d+ min \d+ s \(1\.\d GPU h\): training \d+ %, ", text) is not None
            and re.search(r", queued (9|10) % \(insufficient nvidia.com/gpu\)", text)
            and "(WorkerFailed, 1 restart)" in text,
            "the Event says it",
            text,
        )
        page = fetch(port, "/metrics")[1]
        for part in ("training", "down"):
            name = f'hvd_operator_job_seconds_total{{kind="HorovodJob",part="{part}"}}'
            found = re.search(re.escape(name) + r" (\d+)", page)
            # the first operator counted what happened before it was killed
            expect(found and int(found[1]) <= g["seconds"][part], name, page, g)


@suite.test
def time_alone_is_no_reason_to_write_a_status() -> None:
    with World() as w:
        w.serves_job()
        g = goodput(w)
        version = w.get("horovodjobs", "j0")["metadata"]["resourceVersion"]
        wait("a second passes", lambda: time.time() > seconds(g["time"]) + 2)
        for i in range(2):  # an event of its pods, which wakes the job
            pod = w.get("pods", f"j0-worker-{i}")
            pod["status"]["conditions"] = [{"type": "example.com/Mine", "status": "True"}]
            w.fake.put("pods", pod)
        w.job_runs("later")
        now = w.get("horovodjobs", "j0")
        expect(now["metadata"]["resourceVersion"] == version, "it is not written", now["status"], g)


@suite.test
def a_definition_without_goodput_costs_no_writes() -> None:
    def before(fake) -> None:
        fake.pruned = ("goodput",)
        fake.put("horovodjobs", World.job("j0"))

    with World(jobs=0, before=before) as w:
        w.serves_job()
        version = w.get("horovodjobs", "j0")["metadata"]["resourceVersion"]
        w.job_runs("later")
        now = w.get("horovodjobs", "j0")
        expect(now["metadata"]["resourceVersion"] == version, "it is not written again", now)
        expect(w.log().count("job=ns/j0 field=status.goodput") <= 2, "the log is short", w.log())
