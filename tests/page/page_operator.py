#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tests of page_test.py that need no recorded answers, on a real hvd-operator, in TAP. Its API server
and agents are those of tests/fakes.
usage: BIN=FOLDER page_operator.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "operator"))
sys.path.insert(0, str(HERE.parent / "fakes"))
from agent_fake import rank
from api import wait
from fake_page import ROOT, Paged


def main() -> int:
    with Paged(jobs=2) as w:
        w.run_pods()
        w.answer(step=1200, total_steps=5000, epoch=2, steps_per_s=2.5, samples_per_s=320.0, blocked=0.1)
        w.agent.stacks["j0"] = b"rank 0: <b>read_batch</b>\n"
        w.agent.ranks["j0"] = [rank(0, steps=10), rank(1, steps=9)]
        for i in range(2):
            w.fake.logs[f"ns/j0-worker-{i}/c"] = b"[%d]<stdout>:<b>step</b> 1\n" % i
        wait("a report", lambda: w.api("/jobs/horovodjobs/ns/j0")[1].get("report"))
        env = os.environ | {
            "PAGE_URL": f"http://127.0.0.1:{w.page_port}/",
            "PAGE_TOKEN": ROOT,
            "PAGE_JOB": "ns/j0",
        }
        return subprocess.run([sys.executable, HERE / "page_test.py"], env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
