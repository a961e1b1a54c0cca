# SPDX-License-Identifier: Apache-2.0
"""Live status on a cluster with real pods: progress, a rank that hangs, its verdict and its stacks; part of e2e.py."""

from __future__ import annotations

from cluster import (
    Suite,
    apply,
    condition,
    expect,
    horovodjob,
    items,
    kubectl,
    namespace,
    status_of,
    wait,
    wait_state,
)
from plugin import hvd

PROGRAM = """
import os, threading, time
import torch
import horovod.torch as hvd
hvd.init()
model = torch.nn.Linear(8, 1)
opt = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), 0)
lock = threading.Lock()

def read_batch(step):
    if hvd.rank() == 1 and step >= 20 and not os.path.exists("/tmp/go"):
        lock.acquire()
        threading.Thread(target=wait_for_go, daemon=True).start()
        lock.acquire()
        lock.release()

def wait_for_go():
    while not os.path.exists("/tmp/go"):
        time.sleep(0.1)
    lock.release()

step = 0
while not os.path.exists("/tmp/end"):
    read_batch(step)
    opt.zero_grad()
    loss = model(torch.ones(4, 8)).pow(2).mean()
    loss.backward()
    opt.step()
    step += 1
    hvd.progress(step=step, total=1000000, epoch=1, samples=8 * step, metrics={"loss": loss.item()})
    time.sleep(0.05)
    if hvd.allreduce(torch.tensor(float(os.path.exists("/tmp/last"))), name="last", op=hvd.Max) > 0:
        break
"""


def events(ns: str, reason: str) -> list[dict]:
    return [e for e in items("events", ns) if e["reason"] == reason]


def progress_and_a_hang_are_in_the_status() -> None:
    ns = namespace("e2e-live")
    job = horovodjob("live", ["python3", "-c", PROGRAM], workers=2)
    env = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"]
    env.append({"name": "HOROVOD_STALL_CHECK_TIME_SECONDS", "value": "3"})
    apply(job, ns)
    wait_state("live", ns, "Running")

    def stalled() -> dict | None:
        found = condition(status_of("live", ns), "Stalled")
        is_known = found.get("status") == "True" and found["reason"] != "Unknown"
        return found if is_known else None

    found = wait("the condition Stalled has the verdict", stalled, 180)
    print(f"# {found['reason']}: {found['message']}")
    expect(found["reason"] in ("Lock", "Deadlock"), "it waits for a lock", found)
    expect("read_batch" in found["message"], "in its own function", found)
    status = status_of("live", ns)
    progress = status["progress"]
    expect(progress["step"] == 20 and progress["totalSteps"] == 1000000, "the last step", progress)
    expect("loss" in progress["metrics"], "the program's number", progress)
    expect(len(events(ns, "JobStalled")) == 1, "one Event", events(ns, "JobStalled"))
    stacks = hvd("stacks", "-n", ns, "live")
    expect("rank 1:" in stacks and "read_batch" in stacks, "the stacks", stacks)
    expect("Stalled" in hvd("status", "-n", ns, "live"), "kubectl hvd status")
    kubectl("exec", "-n", ns, "live-worker-1", "--", "touch", "/tmp/go")

    def goes() -> bool:
        now = status_of("live", ns)
        return (
            condition(now, "Stalled").get("status") == "False"
            and now["progress"].get("stepsPerSecond") is not None
        )

    wait("the stall is over and steps are counted", goes, 180)
    table = kubectl("get", "horovodjob", "live", "-n", ns)
    expect("/1000000" in table, "the column PROGRESS", table)
    kubectl("exec", "-n", ns, "live-worker-0", "--", "touch", "/tmp/last")
    status = wait_state("live", ns, "Succeeded")
    goodput = status["goodput"]
    expect(goodput["seconds"].get("stalled", 0) >= 3, "the stall is in the ledger", goodput)
    expect(any("rank 1" in x.get("reason", "") for x in goodput["losses"]), "and its cause", goodput)
    print(f"# {events(ns, 'Goodput')[0]['message']}")


def tests(suite: Suite) -> None:
    suite.test(progress_and_a_hang_are_in_the_status)
