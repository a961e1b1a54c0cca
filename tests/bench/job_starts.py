#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts HorovodJobs of two workers on a control plane, one after the other, in a process with one thread: when it
sees a job run does not depend on what else a benchmark does (agents, viewers, other watches).

stdin: lines with a number of jobs. Each is answered with one line of JSON: for each job the seconds from its POST
until a watch showed it as Running. The end of stdin ends the process. A job is posted at a random time after the
start of the one before, so that what the operator does once a second meets some of them. Its name is "lag-" and
the milliseconds of the monotonic clock (page_viewers.py).
"""

from __future__ import annotations

import json
import random
import sys
import time

import bench_operator as bench
from kwok import Api

APART_S = 0.4  # at most
LIMIT_S = 60


def is_running(line: bytes) -> bool:
    conditions = json.loads(line)["object"].get("status", {}).get("conditions", [])
    return any(c["type"] == "Running" and c["status"] == "True" for c in conditions)


def start_one(poster: Api) -> float:
    time.sleep(random.uniform(0, APART_S))
    name = f"lag-{time.monotonic() * 1000:.0f}"
    path, body = bench.horovodjob(name, 2, 0)
    watch = Api(LIMIT_S)
    answer = watch.send("GET", f"{path}?watch=1&resourceVersion=0&fieldSelector=metadata.name%3D{name}")
    begin = time.monotonic()
    poster.call("POST", path, body)
    while not is_running(answer.readline()):
        pass
    took = time.monotonic() - begin
    watch.connection.close()
    return took


if __name__ == "__main__":
    api = Api()
    for count in sys.stdin:
        print(json.dumps([start_one(api) for _ in range(int(count))]), flush=True)
