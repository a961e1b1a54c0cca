# SPDX-License-Identifier: Apache-2.0
"""Progress in the status, as a real API server keeps it by the definition; part of real_test.py."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fakes"))
from agent_fake import AgentFake, report
from api import Operator, condition, expect, wait
from real_world import BIN, LOG, api, current, kubeconfig, replace, runs, start, suite


@suite.test
def the_definition_keeps_progress_as_it_is_sent() -> None:
    address, ns = f"127.251.{os.getpid() % 250 + 1}.1", "t-ask"
    current().stop()
    replace(
        Operator(BIN / "hvd-operator", kubeconfig, LOG, "--http-port", "0", "--progress-interval", "1s")
    )
    agent = AgentFake(address, lambda: api.items(ns, "secrets"))
    values = {"step": 1200, "total_steps": 5000, "epoch": 2, "total_epochs": 8, "samples": 153600}
    rates = {"steps_per_s": 12.3, "samples_per_s": 2.0, "bus": 1.23e10, "blocked": 0.07}
    since = time.time() - 60
    stall = {"since": since, "seen": since, "text": "rank 1 is stopped", "cause": 1}
    agent.default = report(at=time.time(), **values, **rates, **stall, metrics={"loss": 0.1, "a/b é": 1e-9})
    try:
        runs(ns)
        api.patch_pod(ns, "j-worker-0", {"podIP": address, "podIPs": [{"ip": address}]})
        wait("progress", lambda: api.status(ns, "j").get("progress"))
        p = api.status(ns, "j")["progress"]
        expect(p["metrics"] == {"loss": "0.1", "a/b é": "1e-09"}, "metrics", p)
        rest = {
            k: p[k] for k in ("stepsPerSecond", "samplesPerSecond", "busBandwidth", "exposedCommunication")
        }
        expect(list(rest.values()) == [12.3, 2, 12300000000, 0.07], "rates", rest)
        wait("Stalled", lambda: condition(api.status(ns, "j"), "Stalled").get("reason") == "Stopped")
        n = agent.asked["j"]
        wait("more answers", lambda: agent.asked["j"] > n + 2)
        expect("does not keep the status" not in LOG.read_text(), "all fields are kept")
        table = api.administer("get", "hvdjob", "j", "-n", ns).split("\n")
        expect(table[0].split()[:5] == ["NAME", "STATE", "WORKERS", "PROGRESS", "ETA"], "columns", table)
        expect("1200/5000 (24%)   5m" in table[1], "values", table)
        print("# " + "\n# ".join(table))
    finally:
        agent.stop()
        current().stop()
        replace(start())
