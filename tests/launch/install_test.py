#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-agent install: the runtime's tree into a folder of the user's container. TAP.

usage: install_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

import os
import re
import shutil
import signal

from agent_test import AGENT, BIN, Job
from launched import environment
from tap import Program, Skip, has, main, read, same, wait_until


def make_tree(folder):
    tree = os.path.join(folder, "tree")
    os.makedirs(f"{tree}/bin")
    os.makedirs(f"{tree}/python/_hvd")
    shutil.copy(AGENT, f"{tree}/bin/hvd-agent")
    os.symlink("hvd-agent", f"{tree}/bin/link")
    with open(f"{tree}/python/_hvd/data", "wb") as f:
        f.write(os.urandom(700_000))
    open(f"{tree}/python/empty", "w", encoding="ascii").close()
    os.chmod(f"{tree}/python/_hvd/data", 0o444)
    os.chmod(folder, 0o755)
    os.chmod(f"{tree}/python/_hvd", 0o755)
    return tree


def install(folder, tree, dest, **more):
    return Program([f"{tree}/bin/hvd-agent", "install", dest], {}, folder, "install", **more)


def listing(tree):
    out = {}
    for base, folders, files in os.walk(tree):
        for name in folders + files:
            path = os.path.join(base, name)
            st = os.lstat(path)
            content = os.readlink(path) if os.path.islink(path) else None
            if os.path.isfile(path) and content is None:
                with open(path, "rb") as f:
                    content = hash(f.read())
            out[os.path.relpath(path, tree)] = (st.st_mode, content)
    return out


def test_install_copies_the_tree_twice_the_same(folder):
    tree, dest = make_tree(folder), os.path.join(folder, "dest")
    for _ in range(2):
        program = install(folder, tree, dest)
        same(program.end(), 0, program.err)
        same(program.out.count("\n"), 1)
        assert re.search(r"installed .*tree to .*dest: 4 files, \d+ bytes in \d+ ms", program.out), (
            program.out
        )
        same(listing(dest), listing(tree))


def test_install_replaces_a_program_that_runs(folder):
    tree, dest = make_tree(folder), os.path.join(folder, "dest")
    same(install(folder, tree, dest).end(), 0)
    running = Job(folder, 2, HVD_DIR=dest, HVD_START_TIMEOUT="300").start(
        1, "true", program=f"{dest}/bin/hvd-agent"
    )
    wait_until("it runs", lambda: "hvd-agent" in read(f"/proc/{running.pid}/comm"))
    same(install(folder, tree, dest).end(), 0)
    same(running.process.poll(), None)
    running.signal(signal.SIGKILL)
    running.end()


def test_install_refuses_its_own_tree_and_unwritable_places(folder):
    tree = make_tree(folder)
    for dest, why in (
        (f"{tree}/inner", "which is to be copied"),
        ("/proc/nowhere", "cannot create /proc/nowhere"),
    ):
        program = install(folder, tree, dest)
        same(program.end(), 1)
        has(program.err, why)


def test_install_works_as_any_user(folder):
    if os.geteuid() != 0:
        raise Skip("needs root to become another user")
    tree, dest = make_tree(folder), os.path.join(folder, "dest")
    os.mkdir(dest)
    os.chmod(dest, 0o777)
    program = install(folder, tree, dest, user=12345, group=0, extra_groups=[])
    same(program.end(), 0, program.err)
    same(listing(dest), listing(tree))


def test_the_static_agent_needs_no_libc(folder):
    static = os.environ.get("STATIC_BIN", os.path.join(BIN, "../../stage/bin"))
    if not os.path.exists(f"{static}/hvd-agent"):
        raise Skip("the static build is not there (make stage)")
    if os.geteuid() != 0:
        raise Skip("needs root for chroot")
    root = os.path.join(folder, "root")
    os.makedirs(f"{root}/opt/bin")
    os.mkdir(f"{root}/proc")
    shutil.copy(f"{static}/hvd-agent", f"{root}/opt/bin/hvd-agent")
    script = 'mount --bind /proc "$1/proc" && exec chroot "$1" /opt/bin/hvd-agent install /dest'
    done = Program(["unshare", "--mount", "sh", "-c", script, "-", root], environment(), folder, "install")
    same(done.end(), 0, done.err)
    assert os.path.exists(f"{root}/dest/bin/hvd-agent")


if __name__ == "__main__":
    main(globals())
