#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-operator against a real etcd and kube-apiserver, in TAP. usage: real_test.py [TEST ...]

No kubelet: the test plays scheduler and kubelet by patching pods, so that every state can be
reached, in any order, within milliseconds. The operator runs as a process under the service account
and the ClusterRole of manifests/, so that a missing right fails here. run.sh starts the cluster.
"""

import importlib
import sys

from real_world import current, suite

for part in (
    "gaps",
    "jobs",
    "life",
    "mpi",
    "objects",
    "cli",
    "ask",
    "fake",
    "elect",
    "gang",
    "page",
):  # tests run in this order
    importlib.import_module(f"real_{part}")
if not sys.argv[1:]:  # it reads the audit log of all other tests
    importlib.import_module("real_rights")

if __name__ == "__main__":
    try:
        code = suite.main(sys.argv[1:])
    finally:
        current().stop()
    sys.exit(code)
