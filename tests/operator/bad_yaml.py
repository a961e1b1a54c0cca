# SPDX-License-Identifier: Apache-2.0
"""A table of wrong jobs and the message that each gets.

WRONG is what kubectl apply refuses (the schema and its rules), CHANGES what it refuses to change in a job that
is there, TEXTS what is no good YAML or no known kind, and TOLD what only the operator checks and reports in
condition Failed. tests/packaging/wrong.py gives them to the API server with the operator running.
"""

from __future__ import annotations

import copy

from api import manifest

WORKER = "spec.replicaSpecs.Worker"
POD = WORKER + ".template.spec"
COMMAND = "containers[0].command is missing"
NEW_JOB = "create a new job"
MISSING = object()
BOUNDS = {"minReplicas": 1, "maxReplicas": 4}


def plain(name: str = "bad") -> dict:
    pod = {"containers": [{"name": "train", "image": "i", "command": ["c", "x"]}]}
    roles = {"Worker": {"replicas": 2, "template": {"spec": pod}}}
    return manifest("ringmaster.dev/v1beta1", "HorovodJob", name, spec={"replicaSpecs": roles})


def set_in(body: dict, path: str, value: object) -> None:
    """path like spec.replicaSpecs.Worker.template.spec.containers.0.image; MISSING removes."""
    at = body
    *parents, last = path.split(".")
    for key in parents:
        at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
    if value is MISSING:
        del at[last]
    elif isinstance(at, list):
        at[int(last)] = value
    else:
        at[last] = value


def job(*changes: tuple[str, object], name: str = "bad") -> dict:
    body = copy.deepcopy(plain(name))
    for path, value in changes:
        set_in(body, path, value)
    return body


def one(path: str, value: object, *parts: str) -> tuple[dict, tuple[str, ...]]:
    """A job with one thing changed; the sentence names the field, or has these parts."""
    return job((path, value)), parts or (path,)


def rule(body: dict, *parts: str) -> tuple[dict, tuple[str, ...]]:
    """A job with that failure rule."""
    return one(RULES, [body], *parts)


def fails(subject: str, value: object, place: str, part: str) -> tuple[dict, tuple[str, ...]]:
    """A job with a rule of action Fail about the subject; the sentence names a place in its value."""
    return rule({"action": "Fail", subject: value}, f"failureRules[0].{subject}{place}", part)


FIRST = POD + ".containers.0"
RULES = "spec.runPolicy.failureRules"
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i", "command": ["c"]}]}}
RULE = {"action": "Fail", "onReasons": ["OOMKilled"]}
WRONG: dict[str, tuple[dict, tuple[str, ...]]] = {
    "zero workers": one(WORKER + ".replicas", 0, WORKER + ".replicas", "greater than or equal to 1"),
    "too many workers": one(WORKER + ".replicas", 8193, WORKER + ".replicas", "8192"),
    "half a worker": one(WORKER + ".replicas", 1.5, WORKER + ".replicas", "integer"),
    "workers as a list": one(WORKER + ".replicas", [2], WORKER + ".replicas", "integer"),
    "a long name": (job(name="a" * 60), ("metadata.name", "63 characters")),
    "a long name for 100 workers": (
        job((WORKER + ".replicas", 100), name="a" * 54),
        ("metadata.name", "<name>-worker-<replicas - 1>"),
    ),
    "a dot in the name": (job(name="a.b"), ("metadata.name", "should match")),
    "a digit first": (job(name="1a"), ("metadata.name", "should match")),
    "capitals": (job(name="Job"), ("metadata.name",)),
    "no spec": one("spec", MISSING, "spec", "Required value"),
    "no roles": one("spec.replicaSpecs", MISSING, "spec.replicaSpecs", "Required value"),
    "no workers": one(WORKER, MISSING, WORKER, "Required value"),
    "no template": one(WORKER + ".template", MISSING, WORKER + ".template", "Required value"),
    "a template without spec": one(WORKER + ".template", {}, POD, "Required value"),
    "template misspelt": one(WORKER + ".templates", {}, WORKER + ".templates", "unknown field"),
    "no container": one(POD + ".containers", [], POD + ".containers", "at least 1"),
    "containers misspelt": one(POD, {"container": []}, POD + ".containers", "Required value"),
    "no image": one(FIRST + ".image", MISSING, "containers[0].image", "Required value"),
    "an empty image": one(FIRST + ".image", "", "containers[0].image", "at least 1 chars"),
    "no command": one(FIRST + ".command", MISSING, COMMAND, '["python", "train.py"]'),
    "an empty command": one(FIRST + ".command", [], COMMAND),
    "a command as text": one(FIRST + ".command", "python", "containers[0].command", "array"),
    "a number in the command": one(FIRST + ".command", ["a", 1], "containers[0].command[1]", "string"),
    "a bad container name": one(FIRST + ".name", "A b", "containers[0].name", "should match"),
    "labels as a list": one(WORKER + ".template.metadata.labels", ["a"], "metadata.labels", "object"),
    "a label as a number": one(WORKER + ".template.metadata.labels", {"a": 1}, "metadata.labels.a", "string"),
    "no slots": one("spec.slotsPerWorker", 0, "spec.slotsPerWorker", "greater than or equal to 1"),
    "too many slots": one("spec.slotsPerWorker", 129, "spec.slotsPerWorker", "128"),
    "slots as text": one("spec.slotsPerWorker", "two", "spec.slotsPerWorker", "integer"),
    "an unknown clean-up": one(
        "spec.runPolicy.cleanPodPolicy", "Some", "cleanPodPolicy", '"None", "Running", "All"'
    ),
    "the run policy as text": one("spec.runPolicy", "None", "spec.runPolicy", "object"),
    "an unknown field": one("spec.slotsPerWorkr", 2, "spec.slotsPerWorkr", "unknown field"),
    "MPIJob's name of the roles": one("spec.mpiReplicaSpecs", {}, "spec.mpiReplicaSpecs", "unknown field"),
    "an unknown role": one("spec.replicaSpecs.Master", {}, "spec.replicaSpecs.Master", "unknown field"),
    "a field of a pod in the role": one(WORKER + ".image", "i", WORKER + ".image", "unknown field"),
    "an unknown framework": one("spec.framework", "pytorch", "spec.framework", '"horovod", "tensorflow"'),
    "slots with TensorFlow": (
        job(("spec.framework", "tensorflow"), ("spec.slotsPerWorker", 2)),
        ("spec.slotsPerWorker", "slotsPerWorker must be 1", "uses all GPUs itself"),
    ),
    "a chief without TensorFlow": one(
        "spec.replicaSpecs.Chief", {"template": TEMPLATE}, "PS, Chief and Evaluator need framework tensorflow"
    ),
    "parameter servers without TensorFlow": one(
        "spec.replicaSpecs.PS", {"template": TEMPLATE}, "PS, Chief and Evaluator need framework tensorflow"
    ),
    "a launcher with TensorFlow": (
        job(("spec.framework", "tensorflow"), ("spec.replicaSpecs.Launcher", {"template": TEMPLATE})),
        ("with framework tensorflow there is no role Launcher",),
    ),
    "no bounds of an elastic job": one(
        "spec.elasticPolicy", {}, "spec.elasticPolicy.minReplicas", "spec.elasticPolicy.maxReplicas"
    ),
    "bounds of an elastic job in disorder": one(
        "spec.elasticPolicy", {"minReplicas": 3, "maxReplicas": 2}, "minReplicas is above maxReplicas"
    ),
    "fewer workers than the bounds": one(
        "spec.elasticPolicy", {"minReplicas": 3, "maxReplicas": 9},
        "spec.replicaSpecs.Worker.replicas", "replicas must be from minReplicas to maxReplicas",
    ),
    "too many spares": one(
        "spec.elasticPolicy", {"minReplicas": 1, "maxReplicas": 8192, "spares": 1}, "above 8192 workers"
    ),
    "an elastic job with TensorFlow": (
        job(("spec.framework", "tensorflow"), ("spec.elasticPolicy", BOUNDS)),
        ("spec.elasticPolicy", "elasticPolicy is for framework horovod"),
    ),
    "an elastic job that succeeds by its workers": (
        job(("spec.successPolicy", "AllWorkers"), ("spec.elasticPolicy", BOUNDS)),
        ("spec.successPolicy", "with the role Launcher or elasticPolicy successPolicy is Launcher"),
    ),
    "two launchers": one(
        "spec.replicaSpecs.Launcher", {"replicas": 2, "template": TEMPLATE}, "Launcher.replicas", "unknown field"
    ),
    "a launcher without template": one(
        "spec.replicaSpecs.Launcher", {}, "spec.replicaSpecs.Launcher.template", "Required value"
    ),
    "a launcher without command": one(
        "spec.replicaSpecs.Launcher", {"template": {"spec": {"containers": [{"name": "l", "image": "i"}]}}},
        "spec.replicaSpecs.Launcher.template.spec.containers", COMMAND,
    ),
    "a long name with a launcher": (
        job(("spec.replicaSpecs.Launcher", {"template": TEMPLATE}), name="a" * 53),
        ("metadata.name", "<name>-launcher-0"),
    ),
    "an unknown success": one("spec.successPolicy", "Any", "spec.successPolicy", '"AllWorkers", "Worker0"'),
    "success by a launcher that is not there": one(
        "spec.successPolicy", "Launcher", "successPolicy Launcher needs the role Launcher"
    ),
    "success by worker 0 without TensorFlow": one(
        "spec.successPolicy", "Worker0", "successPolicy Worker0 needs framework tensorflow"
    ),
    "success by workers with a launcher": (
        job(("spec.replicaSpecs.Launcher", {"template": TEMPLATE}), ("spec.successPolicy", "Worker0"),
            (FIRST + ".command", MISSING)),
        ("spec.successPolicy", "with the role Launcher or elasticPolicy successPolicy is Launcher"),
    ),
    "workers with a command, and a launcher": one(
        "spec.replicaSpecs.Launcher", {"template": TEMPLATE}, "with a Launcher the workers run hvd-agent serve"
    ),
    "knobs of Horovod with TensorFlow": (
        job(("spec.framework", "tensorflow"), ("spec.horovod", {"autotune": True})),
        ("spec.horovod", "no effect with framework tensorflow"),
    ),
    "a size that is none": one("spec.shmSize", "much", "spec.shmSize", "should match"),
    "a negative size": one("spec.shmSize", "-1Gi", "spec.shmSize", "should match"),
    "a negative number as size": one("spec.shmSize", -1, "spec.shmSize", "greater than or equal to 1"),
    "RDMA without resource": one("spec.rdma", {"count": 1}, "spec.rdma.resourceName", "Required value"),
    "RDMA without domain": one("spec.rdma", {"resourceName": "hca"}, "spec.rdma.resourceName", "should match"),
    "too many RDMA devices": one("spec.rdma", {"resourceName": "a/b", "count": 65}, "spec.rdma.count", "64"),
    "half a fusion": one("spec.horovod.fusionThresholdMB", 0.5, "fusionThresholdMB", "integer"),
    "a negative cycle": one("spec.horovod.cycleTimeMs", -1, "spec.horovod.cycleTimeMs", "equal to 0"),
    "an unknown log level": one("spec.horovod.logLevel", "loud", "spec.horovod.logLevel", '"warning"'),
    "a switch as text": one("spec.horovod.autotune", "yes", "spec.horovod.autotune", "boolean"),
    "no time to start": one("spec.horovod.startTimeoutSeconds", 0, "startTimeoutSeconds", "equal to 1"),
    "a port beyond all": one("spec.horovod.metricsPort", 70000, "spec.horovod.metricsPort", "65535"),
    "metrics on the agents' port": one("spec.horovod.metricsPort", 7171, "choose another"),
    "metrics with a launcher": (
        job(("spec.replicaSpecs.Launcher", {"template": TEMPLATE}), ("spec.horovod", {"metricsPort": 9100}),
            (FIRST + ".command", MISSING)),
        ("metricsPort has no effect with a Launcher",),
    ),
    "an unknown knob": one("spec.horovod.fusionThreshold", 1, "spec.horovod.fusionThreshold", "unknown field"),
    "a deadline of 0": one("spec.runPolicy.activeDeadlineSeconds", 0, "activeDeadlineSeconds", "equal to 1"),
    "a negative time to live": one("spec.runPolicy.ttlSecondsAfterFinished", -1, "ttlSecondsAfterFinished"),
    "too many restarts": one("spec.runPolicy.backoffLimit", 1001, "backoffLimit", "1000"),
    "suspend as text": one("spec.runPolicy.suspend", "no", "spec.runPolicy.suspend", "boolean"),
    "a manager without domain": one("spec.runPolicy.managedBy", "kueue", "managedBy", "should match"),
    "two managers": (
        job(("spec.managedBy", "a.example/b"), ("spec.runPolicy.managedBy", "a.example/c")),
        ("spec.managedBy", "managedBy and runPolicy.managedBy differ"),
    ),
    "a container twice": one(
        POD + ".containers",
        [{"name": "train", "image": "i", "command": ["x"]}] * 2,
        "containers[1]",
        "Duplicate value",
    ),
    "an unknown gang": one("spec.runPolicy.schedulingPolicy.gang", "kueue", "gang", '"volcano"'),
    "21 rules": one(RULES, [RULE] * 21, "failureRules", "at most 20"),
    "a rule without action": rule({"onReasons": ["OOMKilled"]}, "failureRules[0].action", "Required"),
    "an unknown action": rule(RULE | {"action": "Retry"}, "failureRules[0].action", '"Restart"'),
    "a rule about nothing": rule({"action": "Fail"}, "failureRules[0]", "use one rule for each"),
    "a rule about two things": rule(RULE | {"onSignals": ["SIGKILL"]}, "failureRules[0]", "one rule for each"),
    "exit code 0": fails("onExitCodes", {"operator": "In", "values": [0]}, ".values[0]", "greater than or equal to 1"),
    "an exit code twice": fails("onExitCodes", {"operator": "In", "values": [3, 3]}, ".values[1]", "Duplicate value"),
    "a signal that is none": fails("onSignals", ["KILL"], "[0]", "SIG(HUP|INT"),
    "signal 65": fails("onSignals", [65], "[0]", "64"),
    "a condition without type": fails("onPodConditions", [{}], "[0].type", "Required value"),
    "a reason of two words": fails("onReasons", ["out of memory"], "[0]", "should match"),
}  # fmt: skip

CHANGES: dict[str, tuple[str, object, tuple[str, ...]]] = {  # of job plain()
    "another image": (FIRST + ".image", "other", ("template cannot be changed", NEW_JOB)),
    "another node": (POD + ".nodeName", "n", ("template cannot be changed", NEW_JOB)),
    "other labels": (WORKER + ".template.metadata.labels", {"a": "b"}, ("template", "cannot be changed")),
    "slots": ("spec.slotsPerWorker", 2, ("slotsPerWorker cannot be changed", NEW_JOB)),
    "the framework": ("spec.framework", "tensorflow", ("framework cannot be changed", NEW_JOB)),
    "a success policy": ("spec.successPolicy", "Worker0", ("successPolicy cannot be changed", NEW_JOB)),
    "a manager": ("spec.runPolicy.managedBy", "a.example/b", ("managedBy cannot be changed", NEW_JOB)),
    "a manager of the spec": ("spec.managedBy", "a.example/b", ("managedBy cannot be changed", NEW_JOB)),
    "a gang": (
        "spec.runPolicy.schedulingPolicy",
        {"gang": "volcano"},
        ("schedulingPolicy cannot be changed", NEW_JOB),
    ),
    "a launcher": (
        "spec.replicaSpecs.Launcher",
        {"template": TEMPLATE},
        ("a role cannot be added or removed", NEW_JOB),
    ),
    "a policy": ("spec.elasticPolicy", BOUNDS, ("elasticPolicy cannot be added or removed", NEW_JOB)),
    "no workers left": (WORKER + ".replicas", 0, (WORKER + ".replicas", "greater than or equal to 1")),
}

HEAD = "apiVersion: ringmaster.dev/v1beta1\nkind: HorovodJob\nmetadata: {name: bad}\n"
TEXTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "a tab": (HEAD + "spec:\n\treplicaSpecs: {}\n", ("line 5", "cannot start any token")),
    "an open bracket": (HEAD + "spec: {replicaSpecs: {\n", ("line",)),
    "no kind": (HEAD.replace("kind: HorovodJob\n", ""), ("kind",)),
    "another version": (HEAD.replace("v1beta1", "v9"), ("ringmaster.dev/v9", "HorovodJob")),
    "no name": (HEAD.replace("{name: bad}", "{}") + "spec: {}\n", ("name",)),
    "a list": ("- a\n- b\n", ("invalid object",)),
    "kind misspelt": (HEAD.replace("HorovodJob", "HorovodJobs"), ("HorovodJobs",)),
}

# Accepted by the schema; the operator reports it in condition Failed.
TOLD: dict[str, tuple[dict, str, tuple[str, ...]]] = {
    "a variable of ours": (
        job((FIRST + ".env", [{"name": "HVD_JOB_ID", "value": "x"}])),
        "InvalidSpec",
        ("containers[0].env[0].name", "HVD_JOB_ID", "set by the operator"),
    ),
    "two things at once": (
        job(
            (FIRST + ".env", [{"name": "HVD_NP", "value": "4"}]),
            (POD + ".volumes", [{"name": "ringmaster-runtime", "emptyDir": {}}]),
        ),
        "InvalidSpec",
        ("HVD_NP", "ringmaster-runtime"),
    ),
    "a pod's field misspelt": (
        job((POD + ".nodeSelectr", {"a": "b"})),
        "InvalidPodTemplate",
        ("Pod bad-worker-", "spec.nodeSelectr"),
    ),
    "a bad quantity": (
        job((FIRST + ".resources", {"limits": {"memory": "much"}})),
        "InvalidPodTemplate",
        ("quantities must match",),
    ),
    "a mount without volume": (
        job((FIRST + ".volumeMounts", [{"name": "data", "mountPath": "/data"}])),
        "InvalidPodTemplate",
        ("volumeMounts[0].name", "data"),
    ),
    "a field of the wrong type": (
        job((POD + ".hostNetwork", "yes")),
        "InvalidPodTemplate",
        ("hostNetwork",),
    ),
}


# --- MPIJob -----------------------------------------------------------------------------
ROLES = "spec.mpiReplicaSpecs"


def plain_mpi(name: str = "bad") -> dict:
    sizes = {"Launcher": 1, "Worker": 2}
    roles = {role: {"replicas": n, "template": copy.deepcopy(TEMPLATE)} for role, n in sizes.items()}
    return manifest("kubeflow.org/v2beta1", "MPIJob", name, spec={"mpiReplicaSpecs": roles})


def mpi(path: str, value: object, *parts: str, name: str = "bad") -> tuple[dict, tuple[str, ...]]:
    body = plain_mpi(name)
    set_in(body, path, value)
    return body, parts or (path,)


MPI_WRONG: dict[str, tuple[dict, tuple[str, ...]]] = {
    "no roles": mpi(ROLES, MISSING, ROLES, "Required value"),
    "an unknown MPI": mpi("spec.mpiImplementation", "LAM", "mpiImplementation", '"OpenMPI", "Intel", "MPICH"'),
    "slots as text": mpi("spec.slotsPerWorker", "2", "spec.slotsPerWorker", "integer"),
    "HorovodJob's name of the roles": mpi("spec.replicaSpecs", {}, "spec.replicaSpecs", "unknown field"),
    "an unknown field": mpi("spec.runPolicy.cleanPods", "All", "spec.runPolicy.cleanPods", "unknown field"),
    "a bad quantity": mpi(
        "spec.runPolicy.schedulingPolicy.minResources", {"cpu": "much"}, "minResources.cpu", "should match"
    ),
}  # fmt: skip

# Accepted by mpi-operator's definition; Event ValidationError reports it, as mpi-operator's does.
MPI_TOLD: dict[str, tuple[dict, tuple[str, ...]]] = {
    "negative slots": mpi("spec.slotsPerWorker", -1, "spec.slotsPerWorker", "-1 is below 0"),
    "a name with a digit first": mpi("metadata.labels", {}, "metadata.name", "lower-case", name="1a"),
}  # fmt: skip
