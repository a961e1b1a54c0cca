# SPDX-License-Identifier: Apache-2.0
"""kubectl shows the cause of a failed job without scrolling."""

from __future__ import annotations

import json

from api import ended, expect, wait
from bad_yaml import plain
from common import api, kubectl, make_namespace, suite, world

NS = "packaging-told"
SCREEN = 24  # lines of a terminal: what is seen when kubectl has ended
CAUSE = ("rank 1", "demo-worker-1", "code 3", "node-1")


def fail() -> None:
    """Rank 1 exits with code 3, as its agent and the kubelet report it."""
    make_namespace(NS)
    world.run()
    if api.status(NS, "demo").get("state") == "Failed":
        return
    api.make(NS, plain("demo"))
    wait("pods", lambda: len(api.pods(NS)) == 2)
    for i in (0, 1):
        api.bind(NS, f"demo-worker-{i}", f"node-{i}")
        api.set_pod(NS, f"demo-worker-{i}", "Running")
    wait("demo runs", lambda: api.status(NS, "demo").get("state") == "Running")
    report = 'ringmaster-failure/1 rank=1 host=demo-worker-1 exit=3 signal=0 at=1767225660000500 why=""'
    last = report + "\nValueError: no such file: /data/digits\n"
    api.set_pod(NS, "demo-worker-1", "Failed", **ended(3, last))
    wait("demo has failed", lambda: api.status(NS, "demo").get("state") == "Failed")


@suite.test
def kubectl_describe_ends_with_the_cause() -> None:
    fail()
    text = kubectl("describe", "hvdjob", "demo", "-n", NS)
    screen = "\n".join(text.splitlines()[-SCREEN:])
    for part in ("WorkerFailed", *CAUSE):
        expect(part in screen, f"the last screen says {part}", text)
    output = text[text.index("Status:") :]
    expect("ValueError: no such file" in output, "what the rank wrote last is in the status", text)


@suite.test
def kubectl_get_and_events_name_the_cause() -> None:
    fail()
    row = kubectl("get", "hvdjob", "demo", "-n", NS, "-o", "wide").splitlines()[1]
    events = kubectl("events", "--for", "horovodjob/demo", "-n", NS).splitlines()
    warnings = [e for e in events if " Warning " in e]
    expect(len(warnings) == 1, "one warning", *events)
    for part in CAUSE:
        expect(part in row, f"get -o wide says {part}", row)
        expect(part in warnings[0], f"the event says {part}", warnings[0])
    kubectl("wait", "--for=condition=Failed", "hvdjob/demo", "-n", NS, "--timeout=5s")
    failed = json.loads(kubectl("get", "hvdjob", "demo", "-n", NS, "-o", "json"))["status"]["failure"]
    expect(failed["rank"] == 1 and failed["exitCode"] == 3, "and programs read it", failed)
