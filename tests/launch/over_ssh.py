# SPDX-License-Identifier: Apache-2.0
"""horovodrun started on host a of four namespaces with an sshd each: what the tests have in common."""

import os
import shutil

from hosts import Hosts
from launched import BIN, HOROVODRUN, environment
from tap import has, read, same

RANK = os.path.join(BIN, "launch-rank")
HOSTS = None


def hosts():
    global HOSTS
    if HOSTS is None:
        HOSTS = Hosts()
    HOSTS.start_sshds()
    return HOSTS


def start(folder, *words, env=None, program=HOROVODRUN, tag="run", **more):
    env = environment(TMPDIR=folder, **(env or {}))
    return hosts().start("a", program, *words, env=env, folder=folder, tag=tag, **more)


def run(folder, *words, code=0, left=10, **more):
    p = start(folder, *words, **more)
    got = p.end(40)
    assert got == code, f"exit code {got}, wanted {code}\n{p.out}{p.err}"
    hosts().nothing_left(left)
    return p


def run_ranks(folder, where, script, **more):
    """Runs a rank of a shell script on each host to its end."""
    n = str(where.count(",") + 1)
    return run(folder, "-np", n, "-H", where, "sh", "-c", script, **more)


def agents(name):
    """The agents on a host."""
    return [
        p for p in hosts().pids(name) if "hvd-agent attach" in read(f"/proc/{p}/cmdline").replace("\0", " ")
    ]


def refused(folder, sentence, *words, code=125, **more):
    p = run(folder, *words, code=code, **more)
    has(p.err, sentence)
    errors = [x for x in p.err.splitlines() if x.startswith("horovodrun: ")]
    same(len(errors), 1, f"sentences in {p.err!r}")
    return p


def alone(folder):
    """A horovodrun without an agent in its folder."""
    os.mkdir(f"{folder}/bin")
    return shutil.copy(HOROVODRUN, f"{folder}/bin/horovodrun")
