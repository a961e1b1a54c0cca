# SPDX-License-Identifier: Apache-2.0
"""Bad YAML gets a clear message: tests/operator/bad_yaml.py, against the API server and the operator."""

from __future__ import annotations

from api import JOBS, Refused, condition, expect, wait
from bad_yaml import CHANGES, MPI_TOLD, MPI_WRONG, TEXTS, TOLD, WRONG, plain, set_in
from common import Failed, api, kubectl, make_namespace, suite, world

NS = "packaging-wrong"


def judge(wrong: list[str], what: str, text: str, parts: tuple[str, ...]) -> None:
    wrong += [f"{what}: no '{p}' in: {text}" for p in parts if p not in text]


def all_are_refused(table: dict[str, tuple], send) -> None:
    """send(object) of each row raises, and the message has the row's parts."""
    wrong: list[str] = []
    for what, (body, parts) in table.items():
        try:
            send(body)
            wrong.append(f"{what}: accepted")
        except (Refused, Failed) as e:
            judge(wrong, what, str(e), parts)
    expect(not wrong, f"{len(table)} kinds, each with its sentence", *wrong)


def there() -> None:
    world.run()
    make_namespace(NS)


@suite.test
def the_schema_refuses_wrong_jobs_with_a_message() -> None:
    there()
    all_are_refused(WRONG, lambda body: api.make(NS, body))
    expect(not api.items(NS, "horovodjobs"), "nothing was stored")


@suite.test
def kubectl_refuses_unreadable_text_with_a_message() -> None:
    there()
    apply = ("apply", "--server-side=false", "-n", NS, "-f", "-")
    all_are_refused(TEXTS, lambda text: kubectl(*apply, stdin=text))


@suite.test
def forbidden_changes_are_refused_with_a_message() -> None:
    there()
    wrong: list[str] = []
    ns = make_namespace(NS + "-changes")
    api.make(ns, plain("bad"))
    for what, (path, value, parts) in CHANGES.items():
        text = wait("an answer", lambda ns=ns, path=path, value=value: change(ns, path, value))
        judge(wrong, what, text, parts)
    expect(not wrong, f"{len(CHANGES)} changes, each with its sentence", *wrong)


def change(ns: str, path: str, value: object) -> str | None:
    """What a replaced job is answered with; None: the operator has just written its status."""
    body = api.get(ns, "horovodjobs", "bad")
    set_in(body, path, value)
    try:
        api.call("PUT", JOBS.format(ns=ns) + "/bad", body)
        return "accepted"
    except Refused as e:
        return None if e.code == 409 else str(e)


@suite.test
def the_status_reports_what_only_the_operator_checks() -> None:
    there()
    wrong: list[str] = []
    for number, (body, _, _) in enumerate(TOLD.values()):
        api.make(make_namespace(f"{NS}-{number}"), body)
    for number, (what, (_, reason, parts)) in enumerate(TOLD.items()):
        ns = f"{NS}-{number}"
        try:
            status = wait(
                "Failed", lambda ns=ns: is_failed(api.status(ns, "bad")) and api.status(ns, "bad"), 120
            )
        except AssertionError:
            wrong.append(f"{what}: not Failed but {api.status(ns, 'bad')}")
            continue
        failed = condition(status, "Failed")
        judge(wrong, what, f"{failed['reason']}: {failed['message']}", (reason, *parts))
        events = [e for e in api.items(ns, "events") if e["reason"] == reason]
        if not any(p in e["message"] for e in events for p in parts[:1]):
            wrong.append(f"{what}: no event {reason} reports it")
    expect(not wrong, f"{len(TOLD)} kinds, each told in the status", *wrong)


def is_failed(status: dict) -> bool:
    return condition(status, "Failed").get("status") == "True"


MPIJOBS = "/apis/kubeflow.org/v2beta1/namespaces/{ns}/mpijobs?fieldValidation=Strict"


@suite.test
def the_schema_refuses_wrong_mpijobs_with_a_message() -> None:
    there()
    all_are_refused(MPI_WRONG, lambda body: api.call("POST", MPIJOBS.format(ns=NS), body))


@suite.test
def an_event_reports_what_is_wrong_with_an_mpijob() -> None:
    there()
    wrong: list[str] = []
    for number, (body, _) in enumerate(MPI_TOLD.values()):
        api.call("POST", MPIJOBS.format(ns=make_namespace(f"{NS}-mpi-{number}")), body)
    for number, (what, (_, parts)) in enumerate(MPI_TOLD.items()):
        ns = f"{NS}-mpi-{number}"
        try:
            text = wait("the event", lambda ns=ns: validation_errors(ns), 180)
            judge(wrong, what, text, parts)
        except AssertionError:
            wrong.append(f"{what}: no event, but {[e['reason'] for e in api.items(ns, 'events')]}")
        if api.pods(ns):
            wrong.append(f"{what}: pods were made")
    expect(not wrong, f"{len(MPI_TOLD)} kinds, each told in an event", *wrong)


def validation_errors(ns: str) -> str:
    return "\n".join(e["message"] for e in api.items(ns, "events") if e["reason"] == "ValidationError")
