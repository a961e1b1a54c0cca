# SPDX-License-Identifier: Apache-2.0
"""For real_test.py: the API server accepts the objects of HorovodJobs (tests/golden/objects.txt)."""

from __future__ import annotations

import sys
from pathlib import Path

from api import Refused, expect
from real_world import api, suite

sys.path.append(str(Path(__file__).resolve().parents[1] / "golden"))
import golden_objects

PLURAL = {"Pod": "pods", "Service": "services", "Secret": "secrets", "ConfigMap": "configmaps"}
NOT_TAKEN = {"everything-set", "explicit-nulls"}  # hold what no API server knows, on purpose


def refusals(ns: str) -> list[str]:
    out = []
    for case, objects in golden_objects.cases():
        if case in NOT_TAKEN:
            continue
        for o in objects:
            if o["kind"] not in PLURAL:
                continue  # PodGroups belong to their schedulers
            o["metadata"]["namespace"] = ns
            try:
                api.call(
                    "POST",
                    f"/api/v1/namespaces/{ns}/{PLURAL[o['kind']]}?dryRun=All&fieldValidation=Strict",
                    o,
                )
            except Refused as e:
                out.append(f"{case}: {o['kind']} {o['metadata']['name']}: {e}")
    return out


@suite.test
def every_object_is_accepted_by_a_strict_api_server() -> None:
    found = refusals(api.namespace("t-golden"))
    expect(not found, "every object of the golden files is accepted", "\n".join(found))
