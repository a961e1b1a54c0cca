#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-agent as the status server of a trainer: a client that posts what Transformers' callback posts. TAP.

The callback itself: tests/python/test_howto.py.

usage: trainer_test.py [PART OF A NAME ...]     as agent_test.py
"""

import os
import sys

from agent_test import Job
from launched import scratch
from report_test import report
from tap import has, main, read, same, wait_until

# KubeflowCallback._update_status of Transformers 5.23
CLIENT = r"""
import json, os, ssl, sys, urllib.error, urllib.request
from datetime import datetime, timezone

def post(status, token=None, path="", method="POST"):
    url, ca = os.environ["KUBEFLOW_TRAINER_SERVER_URL"], os.environ.get("KUBEFLOW_TRAINER_SERVER_CA_CERT")
    with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"], encoding="utf-8") as f:
        token = token or f.read().strip()
    data = status if isinstance(status, bytes) else json.dumps({"trainerStatus": status}).encode("utf-8")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url + path, data=data, headers=headers, method=method)
    context = ssl.create_default_context(cafile=ca) if ca else None
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()

def metrics(**values):
    return [{"name": name, "value": str(value)} for name, value in values.items()]
"""
REPORTS = r"""
assert os.environ["KUBEFLOW_TRAINER_STATUS_URL"] == os.environ["KUBEFLOW_TRAINER_SERVER_URL"]
assert os.stat(os.environ["KUBEFLOW_TRAINER_STATUS_TOKEN"]).st_mode & 0o777 == 0o600
now = {"lastUpdatedTime": datetime.now(timezone.utc).isoformat()}
loss = {"loss": 0.25, "grad_norm": float("nan"), "learning_rate": 1e-05}
for status, wanted in (
    ({**now, "progressPercentage": 0, "metrics": metrics(total_steps=30)}, 200),
    ({**now, "progressPercentage": 36, "estimatedRemainingSeconds": 9,
      "metrics": metrics(**loss, current_step=11, total_steps=30, current_epoch=1.1)}, 200),
    ({**now, "progressPercentage": 100, "estimatedRemainingSeconds": 0, "metrics": metrics(**loss)}, 200),
):
    got = post(status)
    assert got == (wanted, "ok\n"), got
for arguments, wanted in (
    ((now, "0" * 64), (401, "needs the token of the file KUBEFLOW_TRAINER_SERVER_TOKEN\n")),
    ((now, None, "/more"), (404, "only /trainer-status takes a POST\n")),
    ((now, None, "", "PUT"), (405, "only GET\n")),
    ((b"[]",), (400, "trainerStatus is not an object\n")),
    ((b"loss=1",), (400, "not JSON: line 1, column 4: ")),
    ((b" " * 16385,), (413, "its body has more than 16384 bytes\n")),
    (({"progressPercentage": -1},),
     (400, "trainerStatus.progressPercentage is not an integer from 0 to 100\n")),
):
    code, text = post(*arguments)
    assert (code, text[:len(wanted[1])]) == wanted, (arguments, code, text)
"""


def test_reports_of_a_callback_are_received(folder):
    job = Job(folder, 1, HOROVOD_LOG_LEVEL="debug", no_proxy="127.0.0.1")
    job.start_all(sys.executable, "-c", CLIENT + REPORTS)
    same(job.end(), [0], job.errors())
    for line in (
        "trainer status received step=0 total=30 epoch=-1 metrics=0",
        "trainer status received step=11 total=30 epoch=2 metrics=3",
        "trainer status received step=30 total=30 epoch=2 metrics=3",
    ):
        has(job.agents[0].err, line)
    same(job.agents[0].err.count("trainer status received"), 3)
    same(scratch(folder), [], "scratch")


def test_the_live_report_shows_it(folder):
    status = {"progressPercentage": 36}
    reports = f"""
post({{**{status}, "metrics": metrics(loss=0.25, current_step=11, total_steps=30, current_epoch=1.1)}})
import time
while not os.path.exists("{folder}/go"):
    time.sleep(0.02)
"""
    job = Job(folder, 1, no_proxy="127.0.0.1").start_all(sys.executable, "-c", CLIENT + reports)
    shown = wait_until("the report has it", lambda: (report(job) or {}).get("progress"))
    open(f"{folder}/go", "w").close()
    same(job.end(), [0], job.errors())
    same([shown[name] for name in ("step", "totalSteps", "epoch")], [11, 30, 2])
    same(shown["metrics"], {"loss": 0.25})


def variables_of(folder, rank):
    return [line for line in read(f"{folder}/env.{rank}").splitlines() if line.startswith("KUBEFLOW_")]


def test_only_worker_0_has_one(folder):
    job = Job(folder, 2).start_all("sh", "-c", f"env > {folder}/env.$HOROVOD_RANK")
    same(job.end(), [0, 0], job.errors())
    names = sorted(line.split("=")[0] for line in variables_of(folder, 0))
    same(names, [f"KUBEFLOW_TRAINER_{a}_{b}" for a in ("SERVER", "STATUS") for b in ("TOKEN", "URL")])
    same(variables_of(folder, 1), [])


def test_a_real_trainer_is_left_alone(folder):
    url = "KUBEFLOW_TRAINER_SERVER_URL=https://trainer:8082/status"
    job = Job(folder, 1, **dict([url.split("=")])).start_all(
        "sh", "-c", f"env > {folder}/env.$HOROVOD_RANK; ls {os.path.join(folder, '*')} > {folder}/files"
    )
    same(job.end(), [0], job.errors())
    same(variables_of(folder, 0), [url])
    assert "trainer-token" not in read(f"{folder}/files")


if __name__ == "__main__":
    main(globals())
