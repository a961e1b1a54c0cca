#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operator has the rights that it uses, and no others, in TAP. usage: rights_test.py AUDIT-LOG ...

Reads what the API server logged while other tests ran the operator under the account and the roles of
manifests/: each request of that account must be within a rule, none may have been forbidden, and each verb
of each rule must have been used. Needs python3-yaml.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = "system:serviceaccount:ringmaster:hvd-operator"
ROLES = ("rbac/clusterrole.yaml", "rbac/role.yaml", "overlays/gang/clusterrole.yaml")
NEVER_ASKED = {  # (group, resource, verb): why no request shows it
    ("kubeflow.org", "mpijobs/finalizers", "update"): "a plug-in of admission asks for it, where it is on",
}
Right = tuple[str, str, str]


def granted() -> set[Right]:
    return {
        (group, resource, verb)
        for file in ROLES
        for rule in yaml.safe_load((ROOT / "manifests" / file).read_text())["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(logs: list[str]) -> tuple[set[Right], set[Right]]:
    """What the account did, and what it was forbidden."""
    did: set[Right] = set()
    forbidden: set[Right] = set()
    for log in logs:
        for line in Path(log).read_text().splitlines():
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


def main() -> int:
    rights = granted()
    did, forbidden = used(sys.argv[1:])
    findings = {
        "the operator did something": set() if did else {("", "nothing", "")},
        "no request is beyond the rules": did - rights,
        "each right is used": rights - did - set(NEVER_ASKED),
        "nothing that has a reason to be unused is used": did & set(NEVER_ASKED),
    }
    print(f"1..{len(findings)}")
    # Quotas and admission forbid, too; only what no rule allows is a matter of rights.
    for right in sorted(forbidden):
        print(f"# forbidden at times: {right[2]} {right[1]}.{right[0]}")
    failed = 0
    for number, (what, wrong) in enumerate(findings.items(), 1):
        failed += bool(wrong)
        print(f"{'not ok' if wrong else 'ok'} {number} - {what}")
        for group, resource, verb in sorted(wrong):
            print(f"#   {verb} {resource}{'.' + group if group else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
