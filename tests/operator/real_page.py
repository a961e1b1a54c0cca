# SPDX-License-Identifier: Apache-2.0
"""The status page under the shipped rights: real tokens, reviews by a real API server. Part of real_test.py.

Without a kubelet there is no log: the test sees how the API server's refusal is passed on.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from api import Operator, expect, manifest, wait
from fake_world import free_port
from page_client import PageClient, Stream
from real_world import BIN, LOG, api, current, job, kubeconfig, replace, runs, start, suite

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
PAGE = "hvd-page"
NS = "t-page"
JOB = f"/jobs/horovodjobs/{NS}/j"


class RealPage(PageClient):
    """The operator of the other tests, with a page."""

    def __init__(self):
        self.page_port = free_port()
        current().stop()
        page = ("--page", str(self.page_port), "--page-check-interval", "1s")
        replace(Operator(BIN / "hvd-operator", kubeconfig, LOG, "--http-port", "0", *page))
        scene()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        current().stop()
        replace(start())


@functools.cache
def scene() -> None:
    """What the component installs, but for its change of the Deployment, and a job that runs."""
    for part in ("reviews", "logs", "viewer", "serviceaccount", "bindings"):
        api.administer("apply", "-f", str(MANIFESTS / f"page/{part}.yaml"))
    api.administer("apply", "-k", str(MANIFESTS / "users"))
    runs(NS)


def token_of(account: str, ns: str, *args: str) -> str:
    return api.administer("create", "token", account, "-n", ns, *args).strip()


def account(name: str, role: str | None) -> None:
    """In NS; with a ClusterRole there."""
    api.call("POST", f"/api/v1/namespaces/{NS}/serviceaccounts", manifest("v1", "ServiceAccount", name))
    if role:
        who = f"--serviceaccount={NS}:{name}"
        api.administer("create", "rolebinding", name, "-n", NS, f"--clusterrole={role}", who)


def api_server_accepts(token: str) -> int:
    """The status of a request that any valid token of the cluster may send."""
    at = urlsplit(api.server)
    tls = ssl.create_default_context(cadata=api.ca)
    with contextlib.closing(
        http.client.HTTPSConnection(at.hostname or "", at.port, context=tls, timeout=20)
    ) as c:
        c.request("GET", "/apis", headers={"Authorization": f"Bearer {token}"})
        return c.getresponse().status


def is_sentence(answer: dict) -> bool:
    text = answer.get("error", "")
    return bool(text) and "\n" not in text and "{" not in text


@suite.test
def the_page_shows_what_the_api_server_allows_each_token() -> None:
    with RealPage() as p:
        everyone = token_of(PAGE, "ringmaster", "--audience", PAGE)
        account("viewer", "view")
        account("stranger", None)
        viewer = token_of("viewer", NS)
        # the aggregated role view gets the rights of manifests/users from the controller manager
        wait("viewer may list", lambda: p.api(f"/jobs?namespace={NS}", viewer)[0] == 200)
        for token in (viewer, token_of("viewer", NS, "--audience", PAGE)):
            status, answer = p.api(f"/jobs?namespace={NS}", token)
            expect(
                status == 200 and [r["name"] for r in answer["jobs"]] == ["j"], "of its namespace", answer
            )
            status, answer = p.api("/jobs", token)
            expect(status == 403 and f"{NS}:viewer may not list" in answer["error"], "not all", answer)
            status, answer = p.api("/jobs?namespace=default", token)
            expect(status == 403 and "default" in answer["error"], "not of another", answer)
        expect(p.api(JOB, viewer)[1]["access"] == {"events": True, "log": True}, "role view has all of it")
        status, answer = p.api("/jobs", everyone)
        expect(status == 200 and answer["kinds"] == ["horovodjobs", "mpijobs"], "both kinds", answer)

        def row() -> tuple[str, str]:
            found = next(r for r in p.api("/jobs", everyone)[1]["jobs"] if r["namespace"] == NS)
            return found["state"], found["workers"]

        wait("its row", lambda: row() == ("Running", "2/2"))
        for token in (token_of("stranger", NS), token_of("stranger", NS, "--audience", PAGE)):
            for path in ("/jobs", f"/jobs?namespace={NS}", JOB, f"{JOB}/log?rank=0"):
                status, answer = p.api(path, token)
                expect(status == 403 and is_sentence(answer), "without rights", path, status, answer)
        for token in (token_of(PAGE, "ringmaster", "--audience", "other"), viewer[:-8] + "AAAAAAAA", None):
            status, answer = p.api("/jobs", token)
            expect(status == 401 and is_sentence(answer), "not a token", status, answer)
        expect(api_server_accepts(viewer) == 200, "an ordinary token is one of the API server")
        expect(api_server_accepts(everyone) == 401, "that of the page is not")
        expect(everyone not in LOG.read_text() and viewer not in LOG.read_text(), "no token in the log")


@suite.test
def the_page_shows_one_job_and_its_events() -> None:
    with RealPage() as p:
        token = token_of(PAGE, "ringmaster", "--audience", PAGE)
        wait("the page serves", lambda: p.api(JOB, token)[0] == 200)
        detail = p.api(JOB, token)[1]
        expect(detail["access"] == {"events": True, "log": True}, "rights", detail["access"])
        pods = [(pod["name"], pod["phase"], pod["node"]) for pod in detail["pods"]]
        expect(pods == [(f"j-worker-{i}", "Running", f"node-{i}") for i in (0, 1)], "pods", detail["pods"])
        expect(any(c["type"] == "Running" for c in detail["conditions"]), "conditions", detail)

        def reasons() -> list[str]:
            return [e["reason"] for e in p.api(f"{JOB}/events", token)[1]["events"]]

        wait("an Event of the job", lambda: "JobRunning" in reasons())
        status, answer = p.api(f"{JOB}/log?rank=0", token)
        expect(status in (404, 500, 502) and is_sentence(answer), "no kubelet, no log", status, answer)
        expect("node" in answer["error"], "the API server's reason", answer)


@suite.test
def a_stream_of_the_page_sees_changes_until_its_account_is_gone() -> None:
    with RealPage() as p:
        account("leaver", "view")
        leaver = token_of("leaver", NS)
        wait("leaver may list", lambda: p.api(f"/jobs?namespace={NS}", leaver)[0] == 200)
        with Stream(p, leaver, f"?namespace={NS}") as s:
            s.wait("all", lambda e, d: e == "jobs" and [r["name"] for r in d["jobs"]] == ["j"])
            uid = api.make(NS, job("k"))["metadata"]["uid"]
            s.wait("k", lambda e, d: e == "change" and any(r["uid"] == uid for r in d["jobs"]))
            api.delete(NS, "horovodjobs", "k")
            s.wait("k is gone", lambda e, d: e == "change" and uid in d.get("gone", []))
            api.delete(NS, "serviceaccounts", "leaver")
            s.wait("the end", lambda e, d: e == "end" and is_sentence(d))
        expect(p.api(f"/jobs?namespace={NS}", leaver)[0] == 401, "its token is no longer valid")
