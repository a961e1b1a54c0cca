#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-agent hosts: prints the workers of a job, as its world file has them. TAP.

usage: world_hosts_test.py [PART OF A NAME ...]     as agent_test.py
"""

from agent_test import AGENT
from launched import environment
from tap import Program, has, main, same, write

ENV = {
    "HVD_JOB_ID": "ns/demo/1",
    "HVD_WORKER_INDEX": "0",
    "HVD_NUM_WORKERS": "2",
    "HVD_SLOTS_PER_WORKER": "8",
    "HVD_CHECKIN_ADDR": "demo-worker-0.demo.ns.svc",
}


def hosts(folder, *words, **more):
    env = environment(**{**ENV, "HVD_WORLD_FILE": f"{folder}/world", **more})
    p = Program([AGENT, "hosts", *words], env, folder, "hosts")
    return p.end(), p.out, p.err


def test_the_world_file_says_how_many_workers_there_are(folder):
    for n in (2, 3, 1):
        write(f"{folder}/world", f"7 {n}")
        want = "".join(f"demo-worker-{i}.demo.ns.svc:8\n" for i in range(n))
        same(hosts(folder), (0, want, ""))


def test_mistakes_are_named(folder):
    write(f"{folder}/world", "7 x")
    for words, more, code, part in (
        (["now"], {}, 2, "hosts takes no arguments: now"),
        ([], {}, 1, "hvd-agent: hosts: "),
        ([], {"HVD_WORLD_FILE": f"{folder}/absent"}, 1, "absent"),
        ([], {"HVD_WORLD_FILE": ""}, 1, "HVD_WORLD_FILE is not set: the operator sets it"),
        ([], {"HVD_WORKER_INDEX": ""}, 1, "HVD_WORKER_INDEX is unset"),
    ):
        got, out, err = hosts(folder, *words, **more)
        same((got, out), (code, ""), err)
        has(err, part)


if __name__ == "__main__":
    main(globals())
