# SPDX-License-Identifier: Apache-2.0
"""End-to-end tests of a HorovodJob's other roles and of what its fields do to pods, for e2e.py."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from cluster import (
    ROOT,
    Suite,
    apply,
    expect,
    get,
    hold_back,
    horovodjob,
    items,
    kubectl,
    namespace,
    pod_template,
    release,
    says,
    wait,
    wait_state,
)

BUILD = Path(ROOT, os.environ.get("BUILD", "build"))
HOROVODRUN = "/opt/ringmaster/bin/horovodrun"
MEET = "import horovod.torch as hvd, torch; hvd.init(); print('sum', int(hvd.allreduce(torch.ones(1), op=hvd.Sum)))"
RESOLVE = """
import json, os, socket
c = json.loads(os.environ["TF_CONFIG"])
for host in sum(c["cluster"].values(), []):
    while True:
        try:
            socket.getaddrinfo(host.split(":")[0], None)
            break
        except socket.gaierror:
            pass
print("all found by", c["task"])
"""


def site_packages(environment: str) -> Path:
    """Of an environment of tests/setup/venv, which has the Python of the training image."""
    made = subprocess.run(
        [ROOT / "tests/setup/venv.sh", environment], stdout=subprocess.PIPE, text=True, check=True
    )
    return next(Path(made.stdout.strip()).glob("lib/python3*/site-packages"))


def log(ns: str, pod: str) -> str:
    return kubectl("logs", "-n", ns, pod, "-c", "main")


def with_launcher(name: str, command: list[str]) -> dict:
    job = horovodjob(name, [], workers=2, slots=2)
    del job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"]
    job["spec"]["replicaSpecs"]["Launcher"] = {"template": pod_template(command)}
    return job


def tests(suite: Suite) -> None:
    @suite.test
    def a_launcher_s_horovodrun_starts_ranks_in_the_workers() -> None:
        ns = namespace("e2e-launcher")
        run = [HOROVODRUN, "-np", "4", "--hostfile", "$(HVD_HOSTFILE)", "python3", "-c", MEET]
        apply(with_launcher("runs", run), ns)
        wait_state("runs", ns, "Succeeded")
        said = log(ns, "runs-launcher-0")
        expect(said.count("sum 4") == 4, "four ranks met", said)

    @suite.test
    def a_launcher_does_not_start_before_late_workers() -> None:
        """Its own time limit is shorter than the workers are late, and no retry is there to be burnt."""
        ns = namespace("e2e-launcher-late")
        run = [HOROVODRUN, "--start-timeout", "9", "-np", "4", "--hostfile", "$(HVD_HOSTFILE)", "hostname"]
        job = with_launcher("late", run)
        hold_back(job, "*")
        apply(job, ns)
        wait("10 s are over", lambda: says(ns, "late-launcher-0", "(tried for 1"), 180)
        release(ns, "late-worker-0", "late-worker-1")
        status = wait_state("late", ns, "Succeeded")
        expect((status["restarts"], status["replacements"]) == (0, 0), "started once", status)
        expect(
            log(ns, "late-launcher-0").count("late-worker-") >= 4,
            "all ranks ran",
            log(ns, "late-launcher-0"),
        )

    @suite.test
    def the_status_has_the_last_lines_of_a_failed_launcher() -> None:
        ns = namespace("e2e-launcher-fails")
        apply(with_launcher("fails", ["sh", "-c", "echo no data >&2; exit 9"]), ns)
        status = wait_state("fails", ns, "Failed")
        failure = status["failure"]
        expect(failure["pod"] == "fails-launcher-0" and failure["exitCode"] == 9, "named", status)
        expect("no data" in json.dumps(failure), "its last words", failure)

    @suite.test
    def tensorflow_s_roles_find_each_other_by_name() -> None:
        ns = namespace("e2e-tensorflow")
        find = ["python3", "-c", RESOLVE]
        job = horovodjob("tf", find)
        job["spec"]["framework"] = "tensorflow"
        job["spec"]["replicaSpecs"]["Chief"] = {"template": pod_template(find)}
        job["spec"]["replicaSpecs"]["PS"] = {"template": pod_template(["sleep", "1000"])}
        job["spec"]["replicaSpecs"]["Evaluator"] = {"template": pod_template(["sleep", "1000"])}
        job["spec"]["runPolicy"]["cleanPodPolicy"] = "Running"
        apply(job, ns)
        wait_state("tf", ns, "Succeeded")
        for pod in "tf-chief-0", "tf-worker-0", "tf-worker-1":
            expect("all found by" in log(ns, pod), f"{pod} found all", log(ns, pod))
        gone = ("tf-ps-0", "tf-evaluator-0")
        wait("servers and evaluator are ended", lambda: not any(get("pod", p, ns) for p in gone), 180)

    @suite.test
    def tensorflow_s_servers_end_with_the_chief() -> None:
        """One script in all pods, with TensorFlow of this machine: the job's pods succeed by themselves."""
        ns = namespace("e2e-parameter-server")
        folders = {"runtime": BUILD / "stage/python", "scripts": ROOT / "tests/python/strategies"}
        folders |= {name: site_packages(name) for name in ("tf", "keras2")}
        mounts = [{"name": name, "mountPath": f"/{name}", "readOnly": True} for name in folders]
        path = [{"name": "PYTHONPATH", "value": "/runtime:/keras2:/tf"}]
        pod = pod_template(
            # without the image's own packages, which are for another NumPy
            ["python3", "-S", "-m", "horovod.compat.strategies", "/scripts/parameter_server.py"],
            container={"volumeMounts": mounts, "env": path},
            volumes=[{"name": n, "hostPath": {"path": str(p)}} for n, p in folders.items()],
        )
        job = horovodjob("ps", [])
        job["spec"]["framework"] = "tensorflow"
        roles = {"Chief": {}, "Worker": {"replicas": 2}, "PS": {"replicas": 1}}
        job["spec"]["replicaSpecs"] = {role: {**count, "template": pod} for role, count in roles.items()}
        apply(job, ns)
        wait_state("ps", ns, "Succeeded", seconds=480)
        said = log(ns, "ps-chief-0")
        expect("5 steps, val_loss" in said and "evaluated: 0." in said, "the chief has trained", said)
        for name in "ps-worker-0", "ps-worker-1", "ps-ps-0":
            wait(
                f"{name} ends by itself",
                lambda n=name: get("pod", n, ns)["status"]["phase"] == "Succeeded",
                180,
            )

    @suite.test
    def a_sidecar_does_not_delay_the_end() -> None:
        ns = namespace("e2e-sidecar")
        job = horovodjob("beside", ["python3", "-c", MEET])
        spec = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
        idle = {"image": spec["containers"][0]["image"], "command": ["sleep", "1000"]}
        spec["containers"].append({"name": "old", **idle})
        spec["initContainers"] = [{"name": "native", "restartPolicy": "Always", **idle}]
        job["spec"]["runPolicy"]["cleanPodPolicy"] = "Running"
        apply(job, ns)
        wait_state("beside", ns, "Succeeded")
        wait("no pod is left running", lambda: not items("pods", ns), 180)

    @suite.test
    def shared_memory_and_knobs_reach_the_ranks() -> None:
        ns = namespace("e2e-knobs")
        show = "df -k /dev/shm | tail -1; echo $HOROVOD_CYCLE_TIME $HOROVOD_FUSION_THRESHOLD"
        job = horovodjob("knobs", ["sh", "-c", show], workers=1)
        job["spec"]["shmSize"] = "96Mi"
        job["spec"]["horovod"] = {"cycleTimeMs": 1.5, "fusionThresholdMB": 2}
        apply(job, ns)
        wait_state("knobs", ns, "Succeeded")
        said = log(ns, "knobs-worker-0")
        expect(" 98304 " in said, "96 MiB of shared memory", said)
        expect("1.5 2097152" in said, "both variables", said)
