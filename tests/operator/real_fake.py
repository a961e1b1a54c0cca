# SPDX-License-Identifier: Apache-2.0
"""tests/fakes/kube_fake.py is itself tested: the same requests go to it and to the real API server, and codes,
reasons and shapes of the answers are compared. Part of real_test.py.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fakes"))
from api import MERGE, expect, manifest, wait
from kube_fake import AUDIENCE, Fake
from real_world import api, suite

CORE = "/api/v1/namespaces/ns"
PODS = f"{CORE}/pods"
JOBS = "/apis/ringmaster.dev/v1beta1/namespaces/ns/horovodjobs"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
STRATEGIC = "application/strategic-merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"


class Events(list):
    """The status of a watch's answer and its events."""

    version = 0  # of the last one


class Talk:
    """Requests to one of the two, and the answers."""

    def __init__(self, url: str, tls: ssl.SSLContext | None):
        at = urlsplit(url)
        self.at = (at.hostname or "", at.port or 0)
        self.tls = tls
        self.seen: dict[str, object] = {}
        self.accept = "application/json"

    def open(self) -> http.client.HTTPConnection:
        if self.tls:
            return http.client.HTTPSConnection(*self.at, context=self.tls, timeout=20)
        return http.client.HTTPConnection(*self.at, timeout=20)

    def send(self, method: str, path: str, body: object = None, content: str = "application/json"):
        text = body if isinstance(body, str) or body is None else json.dumps(body)
        c = self.open()
        c.request(method, path, text, {"Content-Type": content, "Accept": self.accept})
        answer = c.getresponse()
        raw = answer.read().decode()
        c.close()
        return answer.status, json.loads(raw) if raw[:1] == "{" else {}

    def see(
        self,
        what: str,
        method: str,
        path: str,
        body: object = None,
        content: str = "application/json",
        show=None,
    ) -> dict:
        """show(object): what of a good answer is compared, besides its code and the shape of its metadata."""
        code, got = self.send(method, path, body, content)
        seen: list[object] = [code]
        if code >= 400:
            seen.append(
                {k: got.get(k) for k in ("kind", "status", "reason", "code")} if got else "no object"
            )
        elif show:
            seen += [shape(got.get("metadata", {})), show(got)]
        self.seen[what] = seen
        return got

    def watch(self, what: str, path: str, between=None, n: int = 99) -> None:
        """The events until the server ends it, or n of them; between() is called once it is open."""
        self.seen[what] = [event for event in self.events(path, between, n) if event[0] != "BOOKMARK"]

    def bookmark(self, what: str, path: str) -> None:
        """That a watch without selected events gets a bookmark of a newer version.

        When a server sends one is its own decision, so the watch is repeated until one was received.
        """
        for turn in range(12):
            change = {"status": {"message": f"change {turn}"}}
            version = version_now(self)
            events = self.events(
                f"{path}{version}&timeoutSeconds=8&allowWatchBookmarks=true",
                lambda change=change: self.send("PATCH", f"{PODS}/other/status", change, MERGE),
            )
            expect(all(e[0] == "BOOKMARK" for e in events[1:]), "no other event", events)
            if events[1:]:
                self.seen[what] = [*events[1], events.version > int(version)]
                return
        raise AssertionError("no bookmark in 12 watches")

    def events(self, path: str, between=None, n: int = 99) -> Events:
        c = self.open()
        c.request("GET", path, headers={"Accept": self.accept})
        answer = c.getresponse()
        if between:
            between()
        events = Events([[answer.status]])
        while len(events) <= n and (line := answer.readline()):
            event = json.loads(line)
            o = event["object"]
            if event["type"] == "ERROR":
                events.append(["ERROR", {k: o.get(k) for k in ("kind", "status", "reason", "code")}])
                continue
            version = int(o["metadata"]["resourceVersion"])
            events.append([event["type"], o["metadata"].get("name"), version > events.version])
            if event["type"] != "BOOKMARK":
                events[-1] += [o.get("kind"), "spec" in o]
            events.version = version
        c.close()
        return events


def shape(meta: dict) -> dict:
    """Of an object's metadata or a list's: what is there and of which form."""
    return {
        "resourceVersion": meta.get("resourceVersion", "").isdigit(),
        "uid": bool(meta.get("uid")),
        "name": meta.get("name"),
        "namespace": meta.get("namespace"),
        "continue": bool(meta.get("continue")),
    }


def pod(name: str, **labels: str) -> dict:
    out = manifest("v1", "Pod", name, spec={"containers": [{"name": "c", "image": "i"}]})
    out["metadata"]["labels"] = labels
    return out


def names(got: dict) -> list[str]:
    return [o["metadata"]["name"] for o in got["items"]]


def phase(got: dict) -> dict:
    return {k: got["status"].get(k) for k in ("phase", "message", "reason")}


def objects(t: Talk) -> None:
    t.see("a list of nothing", "GET", PODS, show=names)
    t.see("no such kind", "GET", "/apis/ringmaster.dev/v1beta1/namespaces/ns/nothings")
    t.see("no JSON", "POST", PODS, "{")
    t.see("a pod without containers", "POST", PODS, {**pod("x"), "spec": {"containers": []}})
    made = t.see("a pod", "POST", PODS, pod("a", side="l"), show=phase)
    t.see("the same again", "POST", PODS, pod("a"))
    t.see("read", "GET", f"{PODS}/a", show=phase)
    t.see("read what is not there", "GET", f"{PODS}/zz")
    of_status = f"{PODS}/a/status"
    t.see("merged", "PATCH", of_status, {"status": {"phase": "Running", "message": "m"}}, MERGE, phase)
    got = t.see("null takes away", "PATCH", of_status, {"status": {"message": None}}, MERGE, phase)
    again = t.see("nothing new", "PATCH", of_status, {"status": {"phase": "Running"}}, MERGE, phase)
    t.seen["no new version"] = got["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
    old = {"resourceVersion": made["metadata"]["resourceVersion"]}
    t.see("an old version", "PATCH", of_status, {"metadata": old, "status": {"message": "n"}}, MERGE)
    t.see("another uid", "PATCH", of_status, {"metadata": {"uid": "u"}, "status": {"message": "n"}}, MERGE)
    t.see("no such patch", "PATCH", of_status, {"status": {}}, "text/plain")
    t.see("patch what is not there", "PATCH", f"{PODS}/zz/status", {"status": {}}, MERGE)
    t.see("delete another one", "DELETE", f"{PODS}/a", {"preconditions": {"uid": "u"}})
    t.see("a second pod", "POST", PODS, pod("b", side="r"), show=phase)
    page = t.see("a page", "GET", f"{PODS}?limit=1", show=names)
    more = page["metadata"]["continue"]
    t.see("the next page", "GET", f"{PODS}?limit=1&continue={more}", show=names)
    t.see("no such page", "GET", f"{PODS}?limit=1&continue=nonsense")
    t.see("by label", "GET", f"{PODS}?labelSelector=side=r", show=names)
    t.see("by another label", "GET", f"{PODS}?labelSelector=side2", show=names)
    t.see("delete", "DELETE", f"{PODS}/b", {"preconditions": {"uid": uid(t, f"{PODS}/b")}})
    t.see("it is gone", "GET", f"{PODS}/b")
    t.see("delete what is not there", "DELETE", f"{PODS}/b")


def finalizers(t: Talk) -> None:
    def left(got: dict) -> list:
        return [got["metadata"].get("finalizers"), "deletionTimestamp" in got["metadata"]]

    def drop(*names: str, **more: str) -> dict:
        return {"metadata": {"$deleteFromPrimitiveList/finalizers": [*names], **more}}

    kept = pod("f")
    kept["metadata"]["finalizers"] = ["example.com/a", "example.com/b", "example.com/c"]
    path = f"{PODS}/f"
    t.see("a pod with finalizers", "POST", PODS, kept, show=left)
    t.see("one is removed", "PATCH", path, drop("example.com/a"), STRATEGIC, left)
    t.see("one that is not there", "PATCH", path, drop("example.com/a"), STRATEGIC, left)
    t.see("of another uid", "PATCH", path, drop("example.com/b", uid="u"), STRATEGIC)
    t.see("it is deleted", "DELETE", f"{path}?gracePeriodSeconds=0", show=left)
    t.see("it stays", "GET", path, show=left)
    t.see("another is removed", "PATCH", path, drop("example.com/b"), STRATEGIC, left)
    t.see("it still stays", "GET", path, show=left)
    t.see("the last one is removed", "PATCH", path, drop("example.com/c"), STRATEGIC)
    t.see("it goes", "GET", path)
    t.see("a job has no such patch", "PATCH", f"{JOBS}/j", drop("a"), STRATEGIC)


def uid(t: Talk, path: str) -> str:
    return t.send("GET", path)[1]["metadata"]["uid"]


def custom(t: Talk) -> None:
    container = {"name": "c", "image": "i", "command": ["x"]}
    worker = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
    job = manifest("ringmaster.dev/v1beta1", "HorovodJob", "j", spec={"replicaSpecs": {"Worker": worker}})

    def both(got: dict) -> list:
        return [got["spec"]["replicaSpecs"]["Worker"]["replicas"], got.get("status", {}).get("state")]

    t.see("a job", "POST", JOBS, job, show=both)
    patch = {"status": {"state": "Pending"}, "spec": {"replicaSpecs": {"Worker": {"replicas": 5}}}}
    t.see("its status, and no more", "PATCH", f"{JOBS}/j/status", patch, MERGE, both)
    t.see("its spec, and no more", "PATCH", f"{JOBS}/j", {"status": {"state": "Running"}}, MERGE, both)

    def lease(who: str, **more: str) -> dict:
        out = manifest("coordination.k8s.io/v1", "Lease", "l", spec={"holderIdentity": who})
        out["metadata"].update(more)
        return out

    made = t.see("a lease", "POST", LEASES, lease("a"), show=lambda got: got["spec"])
    first = {"resourceVersion": made["metadata"]["resourceVersion"]}
    t.see("a lease taken", "PUT", f"{LEASES}/l", lease("b", **first), show=lambda got: got["spec"])
    t.see("a lease taken too late", "PUT", f"{LEASES}/l", lease("c", **first))


def watches(t: Talk) -> None:
    version = t.send("GET", PODS)[1]["metadata"]["resourceVersion"]

    def change() -> None:
        t.send("POST", PODS, pod("w", side="w"))
        t.send("PATCH", f"{PODS}/w/status", {"status": {"message": "m"}}, MERGE)
        t.send("DELETE", f"{PODS}/w")

    watch = f"{PODS}?watch=1&labelSelector=side=w&resourceVersion="
    t.watch("a pod's life", watch + version, change, 4)
    t.watch("from then on", watch + version, None, 4)
    t.watch("of too long ago", f"{JOBS}?watch=1&resourceVersion=1", None, 2)
    t.watch("ends when it was asked to", f"{watch}{version_now(t)}&timeoutSeconds=1")
    later = int(version_now(t)) + 1000000  # as after etcd was restored
    t.watch("of a version to come", f"{watch}{later}&timeoutSeconds=5", change)
    t.send("POST", PODS, pod("other"))
    t.bookmark("a bookmark", watch)


def metadata(t: Talk) -> None:
    def all_of_it(got: dict) -> list:
        return [got["kind"], [sorted(o) for o in got["items"] or []], got["items"] is None]

    version = t.send("GET", PODS)[1]["metadata"]["resourceVersion"]
    t.accept = METADATA.format("List")
    t.see("metadata of nothing", "GET", f"{PODS}?labelSelector=nobody", show=all_of_it)
    t.see("metadata of a page", "GET", f"{PODS}?limit=1", show=all_of_it)
    t.accept = METADATA.format("")

    def change() -> None:
        t.send("POST", PODS, pod("m", side="m"))
        t.send("DELETE", f"{PODS}/m")

    t.watch(
        "metadata as it changes",
        f"{PODS}?watch=1&labelSelector=side=m&resourceVersion={version}",
        change,
        2,
    )
    t.accept = "application/json"


TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def make_viewer(fake: Fake) -> dict[str, str]:
    """A service account with a few rights in its namespace, at both; its tokens, by audience."""
    name, group = "system:serviceaccount:ns:viewer", "system:serviceaccounts:ns"
    rbac = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": ["ringmaster.dev"], "resources": ["horovodjobs"], "verbs": ["get"]},
    ]
    role = manifest(f"{rbac}/v1", "Role", "viewer", rules=rules)
    ref = {"apiGroup": rbac, "kind": "Role", "name": "viewer"}
    subjects = [{"apiGroup": rbac, "kind": "Group", "name": group}]
    binding = manifest(f"{rbac}/v1", "RoleBinding", "viewer", roleRef=ref, subjects=subjects)
    account = api.call("POST", f"{CORE}/serviceaccounts", manifest("v1", "ServiceAccount", "viewer"))
    api.call("POST", f"/apis/{rbac}/v1/namespaces/ns/roles", role)
    api.call("POST", f"/apis/{rbac}/v1/namespaces/ns/rolebindings", binding)
    at = {"verb": "list", "resource": "pods", "namespace": "ns"}
    asked = {"spec": {"groups": [group], "resourceAttributes": at}}
    wait("the role is in use", lambda: api.call("POST", ACCESS, asked)["status"]["allowed"])
    tokens = {}
    for audience in ("hvd-page", "vault", AUDIENCE):
        request = {"spec": {"audiences": [audience]}}
        path = f"{CORE}/serviceaccounts/viewer/token"
        tokens[audience] = api.call("POST", path, request)["status"]["token"]
        fake.tokens[tokens[audience]] = {
            "user": name,
            "uid": account["metadata"]["uid"],
            "groups": ["system:serviceaccounts", group, "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": ["JTI=x"]},
            "audiences": [audience],
        }
    for verb, resource in (("list", "pods"), ("get", "pods/log"), ("get", "horovodjobs")):
        fake.rights.add((group, verb, resource, "ns"))
    return tokens


def reviews(t: Talk, tokens: dict[str, str]) -> None:
    """operator/page/page_access.c relies on these answers."""

    def token_review(got: dict) -> list:
        status, user = got["status"], got["status"]["user"]
        error = status.get("error", "")
        return [
            status.get("authenticated"),
            {**user, "extra": sorted(user.get("extra", {}))},
            status.get("audiences"),
            "invalid bearer token" in error,
            "is invalid for the target audiences" in error,
        ]

    def token(what: str, token: str, *audiences: str) -> None:
        spec = {"token": token, **({"audiences": [*audiences]} if audiences else {})}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        # an answer has the token, too
        t.see(what, "POST", TOKENS, body, show=lambda got: [got["spec"] == spec, *token_review(got)])

    def access(what: str, groups: list[str], **at: str) -> None:
        spec = {"user": "someone", "groups": groups, "resourceAttributes": at}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        t.see(what, "POST", ACCESS, body, show=lambda got: [got["status"]["allowed"], got["spec"]["user"]])

    for audience, value in tokens.items():
        token(f"a token for {audience}", value)
        token(f"a token for {audience}, to the page", value, "hvd-page")
        token(f"a token for {audience}, to both", value, "hvd-page", AUDIENCE)
    token("no such token", "junk")
    token("no such token, to the page", "junk", "hvd-page")
    token("no token", "")
    t.see("reviews cannot be read", "GET", TOKENS)
    pods = {"verb": "list", "resource": "pods"}
    of_ns = ["system:serviceaccounts:ns"]
    access("a right of the group", of_ns, **pods, namespace="ns")
    access("of another group", ["other"], **pods, namespace="ns")
    access("in another namespace", of_ns, **pods, namespace="ns2")
    access("in all namespaces", of_ns, **pods, namespace="")
    access("another verb", of_ns, **{**pods, "verb": "get"}, namespace="ns")
    access("a subresource", of_ns, verb="get", resource="pods", subresource="log", namespace="ns")
    access("a subresource alone", of_ns, verb="get", resource="pods", subresource="", namespace="ns")
    job = {"verb": "get", "resource": "horovodjobs", "namespace": "ns", "name": "j"}
    access("an object of a group", of_ns, **job, group="ringmaster.dev")
    access("of another API group", of_ns, **job, group="kubeflow.org")
    nobody = {"spec": {"resourceAttributes": pods}}
    t.see("of nobody", "POST", ACCESS, nobody)


def version_now(t: Talk) -> str:
    return t.send("GET", PODS)[1]["metadata"]["resourceVersion"]


@suite.test
def the_fake_api_server_answers_as_the_real_one() -> None:
    api.namespace("ns")
    fake = Fake()
    fake.compacted = 1  # what was before the first object is forgotten
    real = Talk(api.server, api.tls)
    ours = Talk(fake.url, None)
    try:
        for part in (objects, custom, finalizers, watches, metadata):
            for talk in (real, ours):
                part(talk)
        tokens = make_viewer(fake)
        for talk in (real, ours):
            reviews(talk, tokens)
    finally:
        fake.stop()
    wrong = [
        f"{what}: real {real.seen[what]}, fake {ours.seen.get(what)}"
        for what in real.seen
        if real.seen[what] != ours.seen.get(what)
    ]
    expect(not wrong, "the fake answers as the real one", *wrong)
