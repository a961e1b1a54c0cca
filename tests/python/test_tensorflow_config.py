# SPDX-License-Identifier: Apache-2.0
"""TF_CONFIG of a HorovodJob's pods (tests/golden/objects) as TensorFlow itself reads it."""

import json
import unittest

from job import ROOT, python, venv

READ = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
for text in json.loads(sys.argv[1]):
    os.environ["TF_CONFIG"] = text
    r = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    print("READ", json.dumps([r.cluster_spec().as_dict(), r.task_type, r.task_id]))
"""


def pods():
    """(case, role, index, TF_CONFIG) of each pod that the operator gives one."""
    for path in sorted(ROOT.glob("tests/golden/objects/tensorflow-*/objects.json")):
        for pod in json.loads(path.read_text(encoding="utf-8")):
            labels = pod["metadata"]["labels"]
            for entry in pod["spec"].get("containers", [{}])[0].get("env", []):
                if entry["name"] == "TF_CONFIG" and entry["value"] != "mine":
                    role, index = labels["ringmaster.dev/job-role"], labels["ringmaster.dev/replica-index"]
                    yield path.parent.name, role, int(index), entry["value"]


class Config(unittest.TestCase):
    def test_resolver_reads_it_back(self):
        all_pods = list(pods())
        self.assertEqual(
            {(case, role) for case, role, _, _ in all_pods},
            {
                ("tensorflow-single", "worker"),
                ("tensorflow-ps", "worker"),
                ("tensorflow-ps", "chief"),
                ("tensorflow-ps", "ps"),
                ("tensorflow-evaluator", "chief"),
                ("tensorflow-evaluator", "evaluator"),
            },
        )
        texts = json.dumps([text for _, _, _, text in all_pods])
        run = python(READ, texts, python=venv("tf"), timeout=120)
        read = [json.loads(line[5:]) for line in run.out.splitlines() if line.startswith("READ ")]
        self.assertEqual(len(read), len(all_pods), run.out)
        for (case, role, index, text), (cluster, task_type, task_id) in zip(all_pods, read, strict=True):
            self.assertEqual((role, index), (task_type, task_id), case)
            self.assertEqual(cluster, json.loads(text)["cluster"], case)
            self.assertNotIn("evaluator", cluster, case)
            if role != "evaluator":  # its own address is the one that its name in DNS gives
                self.assertEqual(cluster[role][index], f"demo-{role}-{index}.demo.ns.svc:2222", case)
