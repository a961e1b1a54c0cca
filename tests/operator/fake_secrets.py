# SPDX-License-Identifier: Apache-2.0
"""Secrets are wiped from hvd-operator's memory after use. Part of fake_test.py."""

from __future__ import annotations

import base64
import contextlib
import re
import secrets

from api import expect, wait
from fake_access import Access, Known, Secure, ask, only_for
from fake_world import BIN, World, mpijob, suite


def memory(w: World) -> bytes:
    """All that the process can read."""
    pid = w.operator.process.pid
    parts = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            first, last, rights = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line).groups()
            if rights.startswith("rw"):
                mem.seek(int(first, 16))
                with contextlib.suppress(OSError):
                    parts.append(mem.read(int(last, 16) - int(first, 16)))
    return b"\n".join(parts)


def not_in_memory(w: World, **needles: str | bytes) -> None:
    """Sanitizers keep what is freed, and have more memory than can be read."""
    left: dict[str, int] = {}

    def none() -> bool:
        text = memory(w)
        expect(b"hvd-operator" in text, "the memory can be read")
        left.clear()
        raw = {k: v if isinstance(v, bytes) else v.encode() for k, v in needles.items()}
        left.update({k: n for k, v in raw.items() if (n := text.count(v))})
        return not left

    if {"asan", "tsan"} & set(BIN.parts):
        return
    try:
        wait("nothing is left", none)
    except AssertionError as e:
        raise AssertionError(f"{e}: {left}") from None


def reads_its_token_again(kind: type, cluster: str) -> None:
    old, new, seen = secrets.token_hex(40), secrets.token_hex(40), []
    wanted = [f"Bearer {old}"]
    hook = only_for(lambda: wanted[0], seen)
    with kind("{tokenFile: token}", cluster, hook=hook, files={"token": old}) as w:
        w.serves_job()
        (w.dir / "token").write_text(new)
        wanted[0] = f"Bearer {new}"
        w.fake.put("horovodjobs", w.job("j1"))
        w.run_pods(name="j1")
        wait("j1 runs", lambda: w.state("j1") == "Running", 40)  # it is read after 60 s in any case
        seen.clear()  # what was on its way beside the first one refused was sent with the old one too
        w.job_runs("j2")
        expect(set(seen) == {wanted[0]}, "the new one only", seen)
        expect("sync failed" not in w.log(), "no write failed: it was sent once more", w.log())
        w.fake.cut()  # watches, which were opened with the old one
        wait("watches with the new one", lambda: seen[-5:] == [wanted[0]] * 5)
        not_in_memory(w, token=old[8:-8])


@suite.test
def a_refused_token_is_read_again_and_not_kept_in_memory() -> None:
    reads_its_token_again(Access, "")


@suite.test
def a_refused_token_is_read_again_and_not_kept_in_memory_with_tls() -> None:
    reads_its_token_again(Secure, ", certificate-authority: ca.crt")


@suite.test
def a_former_client_key_is_not_kept_in_memory() -> None:
    with Known() as w:
        w.serves_job()
        key = (w.dir / "one.key").read_text().splitlines()[1]
        w.be("two")
        wait("it is read again", lambda: "client certificate renewed" in w.log() or ask(w))
        n = len(w.seen)
        w.fake.cut()  # the watches keep theirs
        wait("other watches", lambda: len(w.seen) >= n + 5)
        not_in_memory(w, key=key)


@suite.test
def the_content_of_secrets_is_not_kept_in_memory() -> None:
    with World() as w:
        w.serves_job()
        w.fake.put("mpijobs", mpijob("m0", 1))
        wait("both are made", lambda: len(w.fake.objects["secrets"]) == 2)
        made = {o["metadata"]["name"]: o["data"] for o in list(w.fake.objects["secrets"].values())}
        token = next(iter(made["j0-token"].values()))
        key = made["m0-ssh"]["ssh-privatekey"]
        wait("worker", lambda: "ns/m0-worker-0" in w.fake.objects["pods"])
        not_in_memory(
            w,
            token=base64.b64decode(token).decode()[:40],
            token_encoded=token[:40],
            key=base64.b64decode(key).decode().splitlines()[2],
            key_encoded=key[200:260],
        )
