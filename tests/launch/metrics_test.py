#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-agent's /metrics: the counters of the ranks that it has started. TAP.

usage: metrics_test.py [PART OF A NAME ...]     as agent_test.py
"""

import os
import re
import socket
import struct
import urllib.request

from agent_test import UP, Job, free_port
from launched import ROOT, scratch
from tap import has, main, read, same


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def test_counters_of_the_ranks_are_served(folder):
    port = free_port()
    job = Job(folder, 1, 2).start_all(
        "sh",
        "-c",
        f'echo "$HVD_STATS_DIR" > {folder}/dir.$HOROVOD_RANK; '
        + UP.format(folder)
        + f"while ! [ -e {folder}/go ]; do sleep 0.02; done",
        HVD_METRICS_PORT=str(port),
    )
    job.ranks_up(2)
    same(read(f"{folder}/dir.0"), read(f"{folder}/dir.1"), "folder of counters")
    # as a rank of a later version writes it (runtime/contract/stats_page.h): more words than known
    words = [7] + [0] * 255
    page = struct.pack("<QIIIIII", 0x3174617473647668, 2, len(words), 1, 2, 0, 99)
    page += bytes(8 + 8 + 9 * 8 + 16 * (128 + 8))  # its begin, and what the program reports
    page += struct.pack(f"<{len(words)}Q", *words)
    with open(f"{read(f'{folder}/dir.1').strip()}/rank.1", "wb") as f:
        f.write(page)
    has(scrape(port), 'hvd_tensors_total{rank="1",kind="allreduce"} 7\n')
    open(f"{folder}/go", "w").close()
    same(job.end(), [0], job.errors())
    same(scratch(folder), [], "scratch")


def test_a_metrics_port_in_use_ends_nothing(folder):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        job = Job(folder, 1).start_all("true", HVD_METRICS_PORT=str(taken.getsockname()[1]))
        same(job.end(), [0], job.errors())
    has(job.agents[0].err, "cannot serve metrics, continuing without")
    job = Job(folder, 1).start_all("true", HVD_METRICS_PORT="http")
    same(job.end(), [125], job.errors())
    has(job.agents[0].err, 'HVD_METRICS_PORT: "http" is not a number from 0 to 65535')


def test_the_operators_page_asks_for_counters_that_there_are(folder):
    page = read(os.path.join(ROOT, "operator/reference/monitoring.md"))
    page = page[page.index("## Metrics of a job") : page.index("## Log")]
    table = read(os.path.join(ROOT, "runtime/doc/metrics.md"))
    known = set(re.findall(r"^\| `(hvd_\w+)` \|", table, re.M))
    asked = set(re.findall(r"\bhvd_\w+", page))
    same(asked - known, set(), "unknown counters")
    same(
        {name for name in asked if "_device_" in name}
        >= {n for n in known if "_device_" in n} - {"hvd_device_registered_bytes_total"},
        True,
    )
    for name in asked:
        same(name.endswith("_total"), f"rate({name}[" in page, f"{name} only grows: rate()")


if __name__ == "__main__":
    main(globals())
