# SPDX-License-Identifier: Apache-2.0
"""Alerts and the dashboard use the operator's metrics; FlowSchemas apply to its requests."""

from __future__ import annotations

import json
import re
import subprocess

from api import expect, wait
from common import MANIFESTS, ROOT, RUN, api, kubectl, kustomize, suite, world

METRIC = re.compile(r"\b(?:hvd_operator|hvd_job|mpi_operator|process)_[a-z_]+")


def metrics() -> dict[str, str]:
    """By name, with their types, as operator/reference/monitoring.md has them; fake_test.py compares that with the operator."""
    readme = (ROOT / "operator/reference/monitoring.md").read_text()
    rows = readme.split("<!-- metrics")[1].split("<!-- end of metrics")[0]
    return dict(re.findall(r"^\| `(\S+)` \| (\S+) \|", rows, re.MULTILINE))


def complaints(what: str, expr: str) -> list[str]:
    known = metrics()
    out = [f"{what}: unbalanced: {expr}"] if expr.count("(") != expr.count(")") else []
    for name in METRIC.findall(expr):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        if name not in known and known.get(base) != "histogram":
            out.append(f"{what}: no metric {name}")
        elif known.get(name, "histogram") in ("counter", "histogram") and not re.search(
            rf"(rate|increase)\({name}", expr
        ):
            out.append(f"{what}: {name} only grows: rate() or increase() is missing")
    return out if METRIC.search(expr) else [*out, f"{what}: uses no metric of ours"]


@suite.test
def alerts_and_dashboard_use_existing_metrics() -> None:
    objects = {o["kind"]: o for o in kustomize("overlays/monitoring")}
    wrong = []
    for group in objects["PrometheusRule"]["spec"]["groups"]:
        for rule in group["rules"]:
            wrong += complaints(rule["alert"], rule["expr"])
            if not rule["annotations"].get("summary") or not rule["annotations"].get("description"):
                wrong.append(f"{rule['alert']}: does not say what it means")
    board = json.loads(objects["ConfigMap"]["data"]["hvd-operator.json"])
    places = set()
    for panel in board["panels"]:
        title, at = panel["title"], panel["gridPos"]
        places.add((at["x"], at["y"]))
        if not panel["description"] or at["x"] + at["w"] > 24:
            wrong.append(f"{title}: no description, or wider than the page")
        for target in panel["targets"]:
            wrong += complaints(title, target["expr"])
            by = re.search(r"by \(([a-z, ]+)\)", target["expr"])
            labels = set(by[1].split(", ")) - {"le"} if by else set()
            if set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) != labels:
                wrong.append(f"{title}: the legend is not {sorted(labels)}")
    expect(len(places) == len(board["panels"]) > 8, "no panel covers another", str(places))
    expect(not wrong, "each asks for what there is", *wrong)


@suite.test
def the_api_server_applies_the_flow_schemas_to_the_operator() -> None:
    world.installed()
    kubectl("apply", "-k", str(MANIFESTS / "overlays/fairness"))
    try:
        uids = {
            o["metadata"]["name"]: o["metadata"]["uid"]
            for o in api.call("GET", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas")["items"]
        }
        for path, name in (
            (
                "/apis/coordination.k8s.io/v1/namespaces/ringmaster/leases/hvd-operator",
                "hvd-operator-leader",
            ),
            ("/apis/ringmaster.dev/v1beta1/horovodjobs", "hvd-operator"),
            ("/api/v1/namespaces/default/services/kubernetes", "hvd-operator"),
        ):
            wait(f"{path} is of {name}", lambda path=path, uid=uids[name]: schema_of(path) == uid, 180)
    finally:
        kubectl("delete", "-k", str(MANIFESTS / "overlays/fairness"))


def schema_of(path: str) -> str:
    """uid of the FlowSchema that an answer to the operator's account names."""
    answer = subprocess.run(
        ["curl", "-s", "-o", "/dev/null", "-D", "-", "--cacert", str(RUN / "operator-ca.crt"),
         "-K", "-", api.server + path],
        input=f'header = "Authorization: Bearer {(RUN / "operator.token").read_text().strip()}"\n',
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    found = re.search(r"^x-kubernetes-pf-flowschema-uid: (\S+)", answer, re.MULTILINE | re.IGNORECASE)
    return found[1] if found else answer
