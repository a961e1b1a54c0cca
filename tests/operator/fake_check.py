# SPDX-License-Identifier: Apache-2.0
"""For fake_test.py: hvd-operator --check, which `helm test` runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess

from api import expect, wait
from fake_world import BIN, World, suite

LEASE = "ringmaster/hvd-operator"
ELECTED = [
    "--leader-elect",
    "--lock-namespace=ringmaster",
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=200ms",
]


class Checked(World):
    """The operator of the World elects itself; status: how lists are answered, by kind."""

    def __init__(self, **status: int):
        super().__init__(self.refuse, jobs=0, extra=ELECTED)
        self.status = status
        wait("the operator leads", lambda: self.fake.objects["leases"] or self.operator.ended())

    @staticmethod
    def refuse(w, h, method, plural, query) -> bool:
        code = getattr(w, "status", {}).get(plural)
        if not code or (method == "GET" and "limit=1" not in h.path):  # the operator's own lists
            return False
        w.fake.answer(h, code, json.dumps({"kind": "Status", "message": f"{plural}: {code} by the test"}))
        return True

    def check(self, *args: str) -> tuple[int, list[str]]:
        command = [BIN / "hvd-operator", f"--kubeconfig={self.dir / 'kubeconfig'}", "--check", *args]
        env = {k: v for k, v in os.environ.items() if k != "KUBERNETES_SERVICE_HOST"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=110, check=False)
        return done.returncode, (done.stdout + done.stderr).splitlines()


@suite.test
def a_check_passes_while_an_operator_acts() -> None:
    with Checked(mpijobs=404) as w:
        code, lines = w.check(*ELECTED)
        expect(code == 0, "it passes", lines)
        expect("ok: HorovodJob: this account may list it" in lines, "each kind has a line", lines)
        expect("skipped: MPIJob: the cluster does not define it" in lines, "one may be missing", lines)
        expect(lines[-2].startswith(f"ok: Lease {LEASE}: ") and lines[-2].endswith(" acts"), "who", lines)
        expect(lines[-1] == "ok: hvd-operator --check: 0 failed", "the result", lines)
        writes = [r for r in w.fake.requests if r[0] != "GET" and "leases" not in r[1]]
        expect(not writes, "it writes nothing", writes)


@suite.test
def a_check_names_each_right_and_definition_that_is_missing() -> None:
    with Checked(horovodjobs=404, pods=403, events=500) as w:
        code, lines = w.check(*ELECTED)
        expect(code == 1, "it fails", lines)
        for line in (
            "failed: HorovodJob: the cluster does not define it",
            "failed: Pod: pods: 403 by the test",
            "failed: Event: events: 500 by the test",
            "failed: hvd-operator --check: 3 failed",
        ):
            expect(line in lines, line, lines)


@suite.test
def a_check_of_the_status_page_creates_both_reviews() -> None:
    ok = "ok: {}: this account may create it"
    with Checked() as w:
        code, lines = w.check(*ELECTED)
        expect(code == 0 and not any("Review" in line for line in lines), "not without a page", lines)
        code, lines = w.check(*ELECTED, "--page=1")
        for kind in ("TokenReview", "SubjectAccessReview"):
            expect(code == 0 and ok.format(kind) in lines, kind, code, lines)
    with Checked(subjectaccessreviews=403) as w:
        code, lines = w.check(*ELECTED, "--page=1")
        expect(code == 1 and ok.format("TokenReview") in lines, "one of two", code, lines)
        why = "subjectaccessreviews: 403 by the test"
        expect(f"failed: SubjectAccessReview: {why}" in lines, "the other one", lines)


@suite.test
def a_check_fails_when_no_operator_renews_the_lease() -> None:
    with Checked() as w:
        w.operator.process.send_signal(signal.SIGSTOP)
        code, lines = w.check(*ELECTED)
        expect(code == 1, "it fails", lines)
        expect(lines[-2].endswith(" holds it and did not renew it for 9 s"), "it names the holder", lines)
        w.operator.process.send_signal(signal.SIGCONT)
    with World(jobs=0) as w:  # an operator without an election
        code, lines = Checked.check(w, *ELECTED)
        expect(f"failed: Lease {LEASE}: no operator held it for 9 s" in lines, "nobody has it", lines)
        code, lines = Checked.check(w, "--leader-elect=false")
        expect(code == 0 and "skipped: Lease: --leader-elect=false" in lines, "not required", lines)


@suite.test
def a_check_of_an_api_server_that_is_not_there_fails() -> None:
    with Checked() as w:
        code, lines = w.check("--master=http://127.0.0.1:9", "--leader-elect=false")
        expect(code == 1 and "127.0.0.1:9" in "".join(lines), "it names the server", lines)
