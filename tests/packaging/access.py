# SPDX-License-Identifier: Apache-2.0
"""Rights: of users by Kubernetes' own roles, and of an operator of one namespace by its Role."""

from __future__ import annotations

import copy
import json
import ssl
import urllib.error
import urllib.request

from api import Operator, Refused, expect, manifest, wait
from bad_yaml import plain
from common import (
    BIN,
    LOG,
    MANIFESTS,
    RUN,
    api,
    apply,
    kubectl,
    kustomize,
    make_namespace,
    suite,
    text_of,
    world,
)

NS = "packaging-one"
RBAC = "rbac.authorization.k8s.io/v1"


def may(user: str, verb: str, what: str, ns: str) -> bool:
    """what: resource.group or resource.group/subresource."""
    name, _, sub = what.partition("/")
    resource, _, group = name.partition(".")
    asked = {"namespace": ns, "verb": verb, "group": group, "resource": resource, "subresource": sub}
    review = {"spec": {"user": user, "resourceAttributes": asked}}
    answer = api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return answer["status"]["allowed"]


@suite.test
def people_have_the_rights_of_their_roles() -> None:
    ns = make_namespace("packaging-people")
    world.installed()
    kubectl("apply", "-k", str(MANIFESTS / "users"))
    for role in ("view", "edit", "admin"):
        let(role, role, ns)
    wait("the roles are put together", lambda: may("view", "get", "horovodjobs.ringmaster.dev", ns), 180)
    have_their_rights(ns)


@suite.test
def kubeflow_s_people_have_the_same_rights() -> None:
    """Its profiles bind roles of its own, which are put together by labels as Kubernetes' are."""
    ns = make_namespace("packaging-kubeflow")
    world.installed()
    kubectl("apply", "-k", str(MANIFESTS / "users"))
    for role in ("view", "edit", "admin"):
        label = f"rbac.authorization.kubeflow.org/aggregate-to-kubeflow-{role}"
        rule = {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}
        apply(manifest(RBAC, "ClusterRole", f"kubeflow-{role}", aggregationRule=rule, rules=[]))
        let(role, f"kubeflow-{role}", ns)
    for role in ("view", "edit", "admin"):
        wait(f"kubeflow-{role}", lambda r=role: may(r, "get", "mpijobs.kubeflow.org", ns), 180)
    have_their_rights(ns)


def let(user: str, role: str, ns: str) -> None:
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    people, rights = group | {"kind": "User", "name": user}, group | {"kind": "ClusterRole", "name": role}
    apply(manifest(RBAC, "RoleBinding", role, roleRef=rights, subjects=[people]), ns=ns)


def have_their_rights(ns: str) -> None:
    for kind in ("horovodjobs.ringmaster.dev", "mpijobs.kubeflow.org"):
        for role in ("view", "edit", "admin"):
            for verb in ("get", "list", "watch"):
                expect(may(role, verb, kind, ns), f"{role} may {verb} {kind}")
        for verb in ("create", "patch", "delete"):
            expect(not may("view", verb, kind, ns), f"view may not {verb} {kind}")
            expect(may("edit", verb, kind, ns), f"edit may {verb} {kind}")
        expect(not may("edit", "patch", kind + "/status", ns), "the status is the operator's")
        expect(not may("edit", "get", kind, "default"), "and nothing elsewhere")
    expect(may("edit", "patch", "horovodjobs.ringmaster.dev/scale", ns), "edit may scale")


PAGE_RIGHTS = {
    "hvd-operator-reviews": {
        "create tokenreviews.authentication.k8s.io",
        "create subjectaccessreviews.authorization.k8s.io",
    },
    "hvd-operator-logs": {"get pods/log."},
    "hvd-page": {
        *(f"{v} {k}" for v in ("get", "list", "watch") for k in ("horovodjobs.ringmaster.dev", "mpijobs.kubeflow.org")),
        "list pods.",
        "list events.",
        "get pods/log.",
    },
    "hvd-page-user": {"get leases.coordination.k8s.io", "get pods.", "list pods.", "create pods/portforward."},
}  # fmt: skip


def rights(role: dict) -> set[str]:
    return {
        f"{verb} {resource}.{group}"
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for group in rule["apiGroups"]
    }


def reviewed(by: str, version: str, kind: str, **spec) -> dict:
    """The status of that review, which the account creates."""
    text = text_of([{"apiVersion": version, "kind": kind, "spec": spec}])
    out = kubectl("create", f"--as={by}", "--validate=false", "-o", "json", "-f", "-", stdin=text)
    return json.loads(out)["status"]


@suite.test
def the_page_s_accounts_have_exactly_their_rights() -> None:
    """The operator checks the viewer's token with them; a token for the page is of no use elsewhere."""
    world.installed()
    objects = kustomize("overlays/page")
    usual = {(o["kind"], o["metadata"]["name"]) for o in kustomize(".")}
    added = [o for o in objects if (o["kind"], o["metadata"]["name"]) not in usual]
    roles = {o["metadata"]["name"]: rights(o) for o in added if o["kind"] in ("ClusterRole", "Role")}
    expect(roles == PAGE_RIGHTS, "the rights of each role", str(roles))
    apply(*added, ns="ringmaster")
    viewer, operator = (f"system:serviceaccount:ringmaster:{x}" for x in ("hvd-page", "hvd-operator"))
    for verb, what, who in (
        ("watch", "horovodjobs.ringmaster.dev", viewer),
        ("get", "mpijobs.kubeflow.org", viewer),
        ("list", "events.", viewer),
        ("get", "pods./log", viewer),
        ("get", "pods./log", operator),
    ):
        wait(f"{who} may {verb} {what}", lambda w=who, v=verb, k=what: may(w, v, k, "packaging-people"))
    for verb, what in (
        ("patch", "horovodjobs.ringmaster.dev"),
        ("get", "secrets."),
        ("create", "pods./exec"),
        ("create", "pods./portforward"),
        ("create", "serviceaccounts./token"),
    ):
        expect(not may(viewer, verb, what, "ringmaster"), f"hvd-page may not {verb} {what}")
    token = kubectl("create", "token", "hvd-page", "-n", "ringmaster", "--audience=hvd-page").strip()
    status = reviewed(
        operator, "authentication.k8s.io/v1", "TokenReview", token=token, audiences=["hvd-page"]
    )
    expect(status.get("user", {}).get("username") == viewer, "the operator can have it checked", status)
    asked = {"namespace": "default", "verb": "list", "group": "ringmaster.dev", "resource": "horovodjobs"}
    status = reviewed(
        operator, "authorization.k8s.io/v1", "SubjectAccessReview", user=viewer, resourceAttributes=asked
    )
    expect(status["allowed"] is True, "and ask for the viewer's rights", status)
    request = urllib.request.Request(f"{api.server}/version", headers={"Authorization": f"Bearer {token}"})
    try:
        urllib.request.urlopen(request, context=ssl.create_default_context(cadata=api.ca), timeout=60)
        code = 200
    except urllib.error.HTTPError as e:
        code = e.code
    expect(code == 401, "the API server itself does not accept it", code)


def in_namespace(objects: list[dict]) -> list[dict]:
    """The overlay's account and roles, for namespace NS, as `namespace:` there would make them."""
    out = []
    for o in copy.deepcopy(objects):
        if o["kind"] in ("ServiceAccount", "Role", "RoleBinding"):
            o["metadata"]["namespace"] = NS
            for subject in o.get("subjects", []):
                subject["namespace"] = NS
            out.append(o)
    return out


@suite.test
def an_operator_of_one_namespace_needs_its_role_only() -> None:
    world.stop()  # the other one, which serves all
    make_namespace(NS)
    elsewhere = make_namespace("packaging-elsewhere")
    objects = in_namespace(kustomize("overlays/namespaced"))
    apply(*objects, ns=NS)
    token = kubectl("create", "token", "hvd-operator", "-n", NS, "--duration=1h").strip()
    whole = world.installed().read_text()
    kubeconfig = RUN / "one.kubeconfig"
    (RUN / "one.token").write_text(token + "\n")
    kubeconfig.write_text(whole.replace("operator.token", "one.token"))
    for ns in (NS, elsewhere):
        try:
            api.make(ns, plain("one"))
        except Refused as e:
            expect(e.code == 409, "from an earlier run", str(e))
    args = ("--http-port", "0", "--namespace", NS, "--leader-elect", "--lock-namespace", NS)
    operator = Operator(BIN / "hvd-operator", kubeconfig, LOG, *args)
    try:
        wait("pods", lambda: operator.ended() or len(api.pods(NS)) == 2, 180)
        expect(not operator.ended(), "it runs", LOG.read_text()[-2000:])
        wait("the status", lambda: api.status(NS, "one").get("state") == "Pending")
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{NS}/leases/hvd-operator"
        wait(
            "the Lease of that namespace", lambda: api.call("GET", lease)["spec"].get("holderIdentity"), 180
        )
        expect(not api.pods(elsewhere) and not api.status(elsewhere, "one"), "nothing elsewhere")
    finally:
        operator.stop()
