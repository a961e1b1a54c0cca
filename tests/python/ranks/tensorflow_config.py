# SPDX-License-Identifier: Apache-2.0
"""TF_CONFIG of a HorovodJob's pods (tests/golden/objects.txt) as TensorFlow itself reads it."""

import json
import os
import sys
from pathlib import Path
from unittest import mock

import horovod.tensorflow as hvd
import tensorflow as tf
from checks import check, main

sys.path.append(str(Path(__file__).resolve().parents[2] / "golden"))
import golden_objects

hvd.init()


def pods():
    """(case, role, index, TF_CONFIG) of each pod that the operator gives one."""
    for case, objects in golden_objects.cases():
        if not case.startswith("tensorflow-"):
            continue
        for pod in objects:
            labels = pod["metadata"]["labels"]
            for entry in pod["spec"].get("containers", [{}])[0].get("env", []):
                if entry["name"] == "TF_CONFIG" and entry["value"] != "mine":
                    role, index = labels["ringmaster.dev/job-role"], labels["ringmaster.dev/replica-index"]
                    yield case, role, int(index), entry["value"]


@check
def resolver_reads_it_back():
    all_pods = list(pods())
    assert {(case, role) for case, role, _, _ in all_pods} == {
        ("tensorflow-single", "worker"),
        ("tensorflow-ps", "worker"),
        ("tensorflow-ps", "chief"),
        ("tensorflow-ps", "ps"),
        ("tensorflow-evaluator", "chief"),
        ("tensorflow-evaluator", "evaluator"),
    }, all_pods
    for case, role, index, text in all_pods:
        with mock.patch.dict(os.environ, TF_CONFIG=text):
            read = tf.distribute.cluster_resolver.TFConfigClusterResolver()
            cluster = read.cluster_spec().as_dict()
            assert (role, index) == (read.task_type, read.task_id), (case, read.task_type, read.task_id)
        assert cluster == json.loads(text)["cluster"], (case, cluster)
        assert "evaluator" not in cluster, case
        if role != "evaluator":  # its own address is the one that its name in DNS gives
            assert cluster[role][index] == f"demo-{role}-{index}.demo.ns.svc:2222", (case, cluster)


main(hvd.rank())
