# SPDX-License-Identifier: Apache-2.0
"""The jobs that fixture.py serves: what operator/page/README.md calls ROW and DETAIL, for each kind of trouble."""

from __future__ import annotations

import datetime as dt
import random

STATES = ["Running"] * 12 + ["Succeeded"] * 5 + ["Pending", "Created", "Restarting", "Suspended", "Failed"]
# Text of a hostile job: markup, ends of elements, a reversed order of characters, controls.
EVIL = (
    '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script></script></pre></table>'
    "'\"--><svg onload=window.hacked=1>&lt;b&gt;&amp; javascript:window.hacked=1 \u202egnp.exe\u202c \u0000\u0007\x1b[31mred"
)
MESSAGES = {
    "Running": ("AllWorkersRunning", "all 4 workers run"),
    "Succeeded": ("AllWorkersSucceeded", "every worker exited with code 0"),
    "Pending": (
        "WorkersNotRunning",
        "1 of 4 workers runs; worker 2 waits: insufficient nvidia.com/gpu on 12 nodes",
    ),
    "Created": ("Creating", "objects are being created"),
    "Restarting": ("JobRestarting", "restart 2 of 5 in 40 s: rank 3 on node gpu-07 exited with code 1"),
    "Suspended": ("JobSuspended", "suspend: true"),
    "Failed": ("WorkerFailed", "rank 5 in pod train-worker-1 was killed by SIGKILL"),
}


def ago(seconds: float) -> str:
    t = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=seconds)
    return t.strftime("%Y-%m-%dT%H:%M:%SZ")


def progress(step: int, total: int, rate: float) -> dict:
    left = (total - step) / rate
    return {
        "summary": f"{step}/{total} ({100 * step // total}%)",
        "percentage": 100 * step // total,
        "step": step,
        "totalSteps": total,
        "epoch": 3,
        "totalEpochs": 10,
        "stepsPerSecond": rate,
        "samplesPerSecond": 128 * rate,
        "busBandwidth": 41_000_000_000,
        "exposedCommunication": 0.08,
        "remaining": f"{int(left / 60)}m",
        "eta": ago(-left),
        "metrics": {"loss": "0.4312", "lr": "0.0003"},
        "updateTime": ago(7),
    }


def row(namespace: str, name: str, state: str = "Running", **more) -> dict:
    reason, message = MESSAGES[state]
    made = {
        "uid": f"uid-{namespace}-{name}",
        "version": "1",
        "kind": "horovodjobs",
        "namespace": namespace,
        "name": name,
        "state": state,
        "reason": reason,
        "message": message,
        "workers": "4/4" if state == "Running" else "1/4" if state == "Pending" else "0/4",
        "ranks": 16,
        "created": ago(4000),
        "goodput": 0.91,
    }
    if state not in ("Created", "Pending"):
        made["started"] = ago(3900)
    if state in ("Succeeded", "Failed"):
        made["finished"] = ago(600)
    return made | more


def special() -> list[dict]:
    return [
        row("vision", "resnet-sweep-17", progress=progress(61_200, 90_000, 6.42), created=ago(9600)),
        row(
            "nlp",
            "stalled",
            stalled=True,
            progress=progress(1200, 5000, 1.5) | {"stepsPerSecond": 0, "eta": ""},
            message="allreduce of gradient.17 waits for rank 6 since 4m: it waits for a lock in data.py:88",
        ),
        row(
            "nlp",
            "straggler",
            straggling=True,
            progress=progress(310_400, 800_000, 11.7),
            message="rank 9 on gpu-03 delays all other ranks by about 120 ms (31 %) of each step",
        ),
        row("nlp", "unknown-progress", restarts=2, replacements=1),
        row("nlp", "steps-only", progress={"step": 18_250, "summary": "18250", "stepsPerSecond": 212.0}),
        row("mpi", "lammps", kind="mpijobs", workers="8/8", ranks=64),
        row("vision", "leaving", "Succeeded", terminating=True),
        row("vision", "broken", "Failed", restarts=3),
        row("vision", "waiting", "Pending"),
        row(
            "hostile",
            "hostile",
            "Failed",
            reason=EVIL,
            message=EVIL,
            workers=EVIL,
            progress={"summary": EVIL, "metrics": {EVIL: EVIL, "loss": EVIL}, "percentage": 7},
        ),
    ]


def many(n: int) -> list[dict]:
    r = random.Random(1)
    out = []
    for i in range(n):
        state = r.choice(STATES)
        total = r.choice([5000, 90_000, 1_200_000])
        more = {"created": ago(5000 + 97 * i)}
        if state in ("Running", "Restarting", "Failed"):
            more["progress"] = progress(r.randrange(1, total), total, round(r.uniform(0.2, 40), 2))
        if state == "Succeeded":
            more["progress"] = progress(total, total, 3.0)
        out.append(row(f"team-{i % 23:02d}", f"train-{i:04d}", state, **more))
    return out


def history(stalled: bool) -> dict:
    r = random.Random(2)
    steps = [6.2 + r.uniform(-0.4, 0.4) for _ in range(200)]
    steps[60:70] = [None] * 10
    steps[100:112] = [1.1] * 12
    if stalled:
        steps[-16:] = [0] * 16
    blocked = [r.uniform(0.05, 0.12) for _ in steps]
    return {
        "every": 15,
        "end": ago(7),
        "stepsPerSecond": steps,
        "samplesPerSecond": [v and 128 * v for v in steps],
        "blockedShare": [0.97] * 16 if stalled else blocked,
    }


def pods(r: dict, text: str) -> list[dict]:
    running = r["state"] == "Running"
    out = [
        {
            "name": f"{r['name']}-worker-{i}",
            "role": "worker",
            "index": i,
            "phase": "Running" if running else "Failed",
            "ready": running,
            "node": f"gpu-{i:02d}",
            "ip": f"10.244.1.{20 + i}",
            "ranks": f"{4 * i}-{4 * i + 3}",
            "created": r["created"],
        }
        for i in range(4)
    ]
    if not running:
        out[1] |= {"exitCode": 137, "exitSignal": 9, "reason": "OOMKilled", "message": text}
    return out


def detail(r: dict) -> dict:
    """What GET .../KIND/NS/NAME answers, without "access"."""
    evil = r["name"] == "hostile"
    text = EVIL if evil else "the container reached its memory limit of 64Gi"
    is_stalled = bool(r.get("stalled"))
    conditions = [
        {
            "type": "Created",
            "status": "True",
            "reason": "JobCreated",
            "message": "all objects were created",
        },
        {
            "type": "Running",
            "status": "True" if r["state"] == "Running" else "False",
            "reason": r["reason"],
            "message": r["message"],
        },
    ]
    if is_stalled:
        conditions.append({"type": "Stalled", "status": "True", "reason": "Lock", "message": r["message"]})
    if r.get("straggling"):
        conditions.append(
            {"type": "Straggling", "status": "True", "reason": "RankSlow", "message": r["message"]}
        )
    for c in conditions:
        c["lastTransitionTime"] = ago(240)
    made = {
        "job": r,
        "spec": {
            "workers": 4,
            "slots": 4,
            "framework": "pytorch",
            "image": EVIL if evil else "example.com/team/train:2026.11",
            "command": ["python", "train.py", "--batch", "128", EVIL if evil else "--name=a b"],
        },
        "conditions": conditions,
        "pods": pods(r, text),
        "goodput": {
            "ratio": "91%",
            "startTime": r["created"],
            "time": ago(7),
            "seconds": {
                "training": 7400,
                "queued": 320,
                "pulling": 95,
                "starting": 41,
                "repeated": 180,
                "down": 75,
            },
            "gpuSeconds": {"training": 118_400, "starting": 656, "repeated": 2880, "down": 1200},
            "losses": [
                {
                    "part": "queued",
                    "reason": EVIL if evil else "insufficient nvidia.com/gpu",
                    "seconds": 320,
                    "count": 1,
                },
                {"part": "repeated", "reason": "WorkerFailed", "seconds": 180, "count": 2},
            ],
            "current": {"part": "stalled" if is_stalled else "training"},
        },
    }
    if r["state"] in ("Failed", "Succeeded"):
        del made["goodput"]["current"]
    if r["kind"] == "mpijobs":
        del made["goodput"]
        return made
    if r["state"] == "Running":
        made["report"] = {"state": "Training", "slots": 4, "rates": {"busBytesPerSecond": 4.1e10}}
        made["reportAge"] = 7
        made["history"] = history(is_stalled)
    if r["state"] in ("Failed", "Restarting"):
        made["firstFailure"] = {
            "rank": 5,
            "pod": f"{r['name']}-worker-1",
            "node": "gpu-01",
            "signal": 9,
            "message": EVIL if evil else r["message"],
            "output": EVIL if evil else "step 61200 loss 0.43\nRuntimeError: CUDA out of memory\n",
            "time": ago(640),
        }
    return made


def events(r: dict) -> list[dict]:
    text = EVIL if r["name"] == "hostile" else "Back-off restarting failed container"
    out = [
        {
            "time": ago(4000),
            "type": "Normal",
            "reason": "JobCreated",
            "object": f"HorovodJob/{r['name']}",
            "message": "all objects were created",
            "count": 1,
        },
        {
            "time": ago(600),
            "type": "Warning",
            "reason": text if r["name"] == "hostile" else "BackOff",
            "object": f"Pod/{r['name']}-worker-1",
            "message": text,
            "count": 12,
        },
    ]
    return out


def ranks(n: int) -> list[dict]:
    return [
        {
            "rank": i,
            "pid": 40 + i % 4,
            "state": "InWorld",
            "age": 3600.5,
            "steps": 22_000,
            "stepNanoseconds": 3_500_000_000_000,
            "blockedNanoseconds": (250 + 7 * (i % 5)) * 1_000_000_000,
            "cpuSeconds": 6480.25 + i,
            "residentBytes": (9 << 30) + (i << 20),
            "stoppedSeconds": 12.0 if i == 6 else 0.0,
        }
        for i in range(n)
    ]


def stacks(r: dict) -> str:
    if r["name"] == "hostile":
        return EVIL + "\n" + "x" * 100_000
    if not r.get("stalled"):
        return ""
    return (
        "rank 6 (gpu-01, pid 42): Lock\n  data.py:88 next_batch\n    with self.lock:\n  train.py:140 main\n"
    )


def log(r: dict, rank: str, tail: int) -> str:
    if r["name"] == "hostile":
        return (
            EVIL + "\n" + "<b>" * 33_000 + "\n\x1b[1;32mgreen\x1b[0m done\n 10%|#\r 55%|###\r100%|#####\n"
        )
    lines = [f"[{rank or 'all'}] step {60_000 + i} loss {0.5 - i / 10_000:.4f}" for i in range(400)]
    return "\n".join(lines[-tail:]) + "\n"
