# SPDX-License-Identifier: Apache-2.0
"""Rights: of users by Kubernetes' own roles, and of an operator of one namespace by its Role."""

from __future__ import annotations

import copy

from api import Operator, Refused, expect, manifest, wait
from bad_yaml import plain
from common import BIN, LOG, MANIFESTS, RUN, api, apply, kubectl, kustomize, make_namespace, suite, world

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
