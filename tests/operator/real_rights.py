# SPDX-License-Identifier: Apache-2.0
"""The operator has the rights that it uses, and no others; the last part of real_test.py.

Reads what the API server logged while the other tests ran the operator under the account and the roles of
manifests/: each request of that account must be within a rule, and each verb of each rule must have been
used. Needs python3-yaml.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from api import expect
from real_world import RUN, api, suite

ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = "system:serviceaccount:ringmaster:hvd-operator"
ROLES = (
    "rbac/clusterrole.yaml",
    "rbac/role.yaml",
    "overlays/gang/clusterrole.yaml",
    "overlays/kueue/clusterrole.yaml",
    "page/reviews.yaml",
    "page/logs.yaml",
)
LARGE = "for jobs that do not fit in the cache, see jobs_that_do_not_fit_in_the_cache_are_requested"
NEVER_ASKED = {  # (group, resource, verb): why no request shows it
    ("ringmaster.dev", "horovodjobs", "get"): LARGE,
    ("kubeflow.org", "mpijobs", "get"): LARGE,
    ("kubeflow.org", "mpijobs/finalizers", "update"): "a plug-in of admission asks for it, where it is on",
}
SINCE = {  # the same, from a minor of Kubernetes on
    ("batch", "jobs/status", "patch"): (36, "it clears the start time of a suspended Job itself"),
}
Right = tuple[str, str, str]


def never_asked() -> set[Right]:
    minor = int(api.call("GET", "/version")["minor"])
    return set(NEVER_ASKED) | {right for right, (since, _) in SINCE.items() if minor >= since}


def granted() -> set[Right]:
    return {
        (group, resource, verb)
        for file in ROLES
        for rule in yaml.safe_load((ROOT / "manifests" / file).read_text())["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used() -> tuple[set[Right], set[Right]]:
    """What the account did, and what it was forbidden."""
    did: set[Right] = set()
    forbidden: set[Right] = set()
    for log in sorted((RUN / "log").glob("audit*.log")):  # of the whole suite
        for line in log.read_text().splitlines():
            if ACCOUNT not in line:
                continue
            entry = json.loads(line)
            at = entry.get("objectRef")
            if entry["user"]["username"] != ACCOUNT or not at:
                continue
            resource = at["resource"] + (f"/{at['subresource']}" if "subresource" in at else "")
            right = (at.get("apiGroup", ""), resource, entry["verb"])
            did.add(right)
            if entry.get("responseStatus", {}).get("code") == 403:
                forbidden.add(right)
    return did, forbidden


def none(rights: set[Right]) -> None:
    lines = sorted(f"{verb} {resource}{'.' + group if group else ''}" for group, resource, verb in rights)
    expect(not lines, "none", "\n".join(lines))


@suite.test
def the_operator_used_only_its_rights() -> None:
    did, forbidden = used()
    expect(bool(did), "it did something")
    none(did - granted())
    for _, resource, verb in sorted(forbidden):  # quotas and admission forbid, too
        print(f"# forbidden at times: {verb} {resource}")


@suite.test
def each_right_of_the_operator_is_used() -> None:
    none(granted() - used()[0] - never_asked())


@suite.test
def a_right_that_has_a_reason_to_be_unused_is_unused() -> None:
    none(used()[0] & never_asked())
