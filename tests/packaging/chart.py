# SPDX-License-Identifier: Apache-2.0
"""kustomize and Helm: the same objects, and the API server takes them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import yaml
from api import Operator, expect, manifest, wait
from common import (
    BIN,
    CHART,
    HELM,
    LOG,
    RUN,
    Failed,
    api,
    helm,
    kubectl,
    kustomize,
    make_namespace,
    read,
    suite,
    text_of,
    world,
)

NS_TEST = "packaging-helm-test"
HELMS_OWN = ("app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart")


def template_text(*args: str) -> str:
    return helm("template", "r", str(CHART), "-n", "ringmaster", *args)


def template(*args: str) -> list[dict]:
    """Without the pod of `helm test`, which is no part of the installation."""
    return read(template_text("--skip-tests", *args))


def normal(objects: list[dict], namespace: bool = False) -> dict[str, str]:
    """By kind and name, without what only Helm writes; a Namespace is made by its --create-namespace."""
    out = {}
    for o in objects:
        meta = o["metadata"]
        meta["labels"] = {k: v for k, v in meta.get("labels", {}).items() if k not in HELMS_OWN}
        meta.get("annotations", {}).pop("helm.sh/resource-policy", None)
        if not meta.get("annotations"):
            meta.pop("annotations", None)
        if o["kind"] != "Namespace" or namespace:
            out[f"{o['kind']} {meta['name']}"] = json.dumps(o, indent=1, sort_keys=True)
    return out


def same(by_helm: list[dict], by_kustomize: list[dict]) -> None:
    a, b = normal(by_helm), normal(by_kustomize)
    expect(sorted(a) == sorted(b), "the same objects", str(sorted(a)), str(sorted(b)))
    for name in a:
        expect(a[name] == b[name], f"{name} is the same", a[name], b[name])


@suite.test
def helm_lint_finds_nothing() -> None:
    out = helm("lint", "--strict", str(CHART))
    expect("0 chart(s) failed" in out, "helm lint", out)


@suite.test
def helm_and_kustomize_install_the_same() -> None:
    same(template(), kustomize("."))
    same(template("--set", "extraArgs=null"), kustomize("."))  # an empty line in a file of values


@suite.test
def helm_s_values_make_the_overlays() -> None:
    args = "--gang-scheduling=volcano"
    same(template("--set", "gangScheduler=volcano"), kustomize("overlays/gang"))
    same(template("--set", "page.enabled=true"), kustomize("overlays/page"))
    usual = normal(template())
    for values, overlay in (
        ([f"metrics.{x}.enabled=true" for x in ("serviceMonitor", "rules", "dashboard")], "monitoring"),
        (["flowSchema.enabled=true"], "fairness"),
        (["rbac.kueue=true"], "kueue"),
    ):
        more = template("--set", ",".join(values))
        added = [o for o in more if f"{o['kind']} {o['metadata']['name']}" not in usual]
        same(added, kustomize(f"overlays/{overlay}"))
    one = normal(template("--set", "rbac.namespaced=true", "--set", "crds.install=false,rbac.users=false"))
    other = normal(kustomize("overlays/namespaced"))
    expect(sorted(one) == sorted(other), "objects of one namespace", str(sorted(one)), str(sorted(other)))
    for name in (n for n in one if not n.startswith("Deployment")):
        expect(one[name] == other[name], f"{name} is the same", one[name], other[name])
    expect("--namespace=ringmaster" in one["Deployment hvd-operator"], "it serves that namespace")
    expect("--namespace=$(POD_NAMESPACE)" in other["Deployment hvd-operator"], "the overlay's, too")
    expect(args not in one["Deployment hvd-operator"], "and no other option")


@suite.test
def the_page_of_one_namespace_needs_the_reviews_of_the_cluster_only() -> None:
    values = "page.enabled=true,rbac.namespaced=true,crds.install=false,rbac.users=false"
    by_helm = [o for o in template("--set", values) if o["kind"] != "Deployment"]
    for o in by_helm:  # Helm's can be of several releases
        if o["metadata"]["name"] == "hvd-operator-reviews-ringmaster":
            o["metadata"]["name"] = "hvd-operator-reviews"
        if o.get("roleRef", {}).get("name") == "hvd-operator-reviews-ringmaster":
            o["roleRef"]["name"] = "hvd-operator-reviews"
    by_kustomize = kustomize("overlays/page-namespaced")
    same(by_helm, [o for o in by_kustomize if o["kind"] != "Deployment"])
    of_cluster = [o["metadata"]["name"] for o in by_kustomize if o["kind"].startswith("ClusterRole")]
    expect(of_cluster == ["hvd-operator-reviews"] * 2, "one right of the cluster", str(of_cluster))


@suite.test
def the_page_s_port_is_an_option_and_a_named_port() -> None:
    """kubectl hvd page finds the port by its name."""
    values = "page.enabled=true,page.port=9090,page.address=0.0.0.0"
    for objects, port in ((template("--set", values), 9090), (kustomize("overlays/page"), 8090)):
        deployment = next(o for o in objects if o["kind"] == "Deployment")
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        expect(f"--page={port}" in container["args"], "the option", str(container["args"]))
        expect(
            {"name": "page", "containerPort": port} in container["ports"], "the port", container["ports"]
        )
        has_address = "--page-address=0.0.0.0" in container["args"]
        expect(has_address == (port == 9090), "the address only if it is set", str(container["args"]))
        policy = next(o for o in objects if o["kind"] == "NetworkPolicy")
        open_ports = [p["port"] for rule in policy["spec"]["ingress"] for p in rule["ports"]]
        expect(open_ports == [8080], "not open to other pods", str(open_ports))
    test = next(o for o in read(template_text("--set", values)) if o["kind"] == "Pod")
    expect("--page=9090" in test["spec"]["containers"][0]["args"], "helm test has the same options", test)
    expect("page" not in template_text("--set", "page=null"), "values of a former release have none")


@suite.test
def every_value_does_something() -> None:
    """A value that changes nothing in what is made is not there."""
    usual = template_text()
    for value in (
        "image.repository=r.example/o", "image.tag=t1", "image.pullPolicy=Always",
        "runtimeImage.repository=r.example/r", "runtimeImage.tag=t1", "imagePullSecrets[0].name=s",
        "replicas=3", "leaderElection=false,replicas=1", "watchNamespace=team", "gangScheduler=volcano",
        "clusterDomain=c.example", "logLevel=debug", "logJson=true", "extraArgs[0]=--kube-api-qps=5", "webhook.secretName=s",
        "rbac.create=false", "rbac.namespaced=true", "rbac.users=false", "rbac.kueue=true", "crds.install=false",
        "crds.keep=false", "crds.mpijob=true", "resources.limits.memory=1Gi", "nodeSelector.a=b",
        "tolerations[0].operator=Exists", "affinity.nodeAffinity.x=y", "priorityClassName=p",
        "podAnnotations.a=b", "podLabels.a=b", "networkPolicy.enabled=false",
        "networkPolicy.apiServerPorts={8443}", "pdb.enabled=false", "pdb.maxUnavailable=50%",
        "metrics.service=false", "metrics.serviceMonitor.enabled=true", "metrics.rules.enabled=true",
        "metrics.dashboard.enabled=true", "flowSchema.enabled=true", "page.enabled=true",
    ):  # fmt: skip
        expect(template_text("--set", value) != usual, f"{value} changes something")


@suite.test
def a_release_elsewhere_names_no_other_namespace() -> None:
    """What comes from manifests/ has namespace ringmaster in it."""
    on = "flowSchema.enabled=true,metrics.serviceMonitor.enabled=true,metrics.rules.enabled=true"
    on += ",metrics.dashboard.enabled=true,page.enabled=true,crds.install=false"
    made = read(helm("template", "r", str(CHART), "-n", "elsewhere", "--set", on))
    expect(len(made) > 12, "all parts are made", str(len(made)))
    for o in made:
        wrong = [x for x in words(o) if x == "ringmaster"]
        expect(not wrong, f"{o['kind']} {o['metadata']['name']} is in its own namespace", o)


def words(tree: object) -> list[str]:
    """Texts in it, but for labels, which have the product's name."""
    if isinstance(tree, dict):
        return [w for k, v in tree.items() if "part-of" not in k for w in words(v)]
    if isinstance(tree, list):
        return [w for v in tree for w in words(v)]
    return [str(tree)]


@suite.test
def every_value_is_in_the_chart_s_readme_and_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    told: set[str] = set()
    for row in re.findall(r"^\| (`[^|]*) \|", (CHART / "README.md").read_text(), re.MULTILINE):
        names = re.findall(r"`([^`]+)`", row)
        stem = names[0].rsplit(".", 1)[0]
        told |= {stem + n if n.startswith(".") else n for n in names}
    there = {name: path for name, path in leaves(values)}
    wrong = [f"{n}: not in README.md" for n in there if n not in told]
    wrong += [f"{n}: in README.md, not in values.yaml" for n in told if n not in there]
    for name, path in there.items():
        node = schema
        for key in path:
            node = node.get("properties", {}).get(key, {})
        if not node:
            wrong.append(f"{name}: not in values.schema.json")
    expect(not wrong, "values, README and schema have the same names", *wrong)


def leaves(values: dict, path: tuple[str, ...] = ()) -> list[tuple[str, tuple[str, ...]]]:
    """Names with their paths. What is under resources is Kubernetes' own."""
    out = []
    for key, value in values.items():
        at = (*path, key)
        if isinstance(value, dict) and value and at != ("resources",):
            out += leaves(value, at)
        else:
            out.append((".".join(at), at))
    return out


@suite.test
def wrong_values_are_refused_with_the_value_s_name() -> None:
    wrong = []
    for value, part in (
        ("replica=2", "replica"),
        ("replicas=-1", "replicas"),
        ("replicas=two", "replicas"),
        ("leaderElection=false", "leaderElection"),
        ("image.tagg=1", "tagg"),
        ("image.tag=", "tag"),
        ("image.repository=a b", "repository"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("rbac.namespace=true", "namespace"),
        ("rbac.namespaced=yes", "namespaced"),
        ("rbac.namespaced=true,gangScheduler=volcano", "gangScheduler"),
        ("watchNamespace=A_b", "watchNamespace"),
        ("logLevel=loud", "logLevel"),
        ("extraArgs[0]=x", "extraArgs"),
        ("webhook.secretName=A_b", "secretName"),
        ("webhook.url=https://h", "url"),
        ("crds.keeep=true", "keeep"),
        ("networkPolicy.apiServerPorts={0}", "apiServerPorts"),
        ("pdb.maxUnavailable=half", "maxUnavailable"),
        ("metrics.serviceMonitor.interval=often", "interval"),
        ("page.enabled=true,page.port=8081", "port"),
        ("page.address=all", "address"),
        ("resources.memory=1Gi", "memory"),
        ("podLabels.a=1", "podLabels"),
    ):
        try:
            template("--set", value)
            wrong.append(f"{value}: accepted")
        except Failed as e:
            if part not in str(e):
                wrong.append(f"{value}: no '{part}' in: {e}")
    expect(not wrong, "refused, each with its name", *wrong)


def helm_there(*args: str) -> str:
    return helm(*args, "-n", "packaging-helm", "--kubeconfig", str(RUN / "admin.kubeconfig"))


@suite.test
def helm_installs_upgrades_and_leaves_the_definition() -> None:
    world.stop()  # what it finds becomes its own, and what it removes is installed again by the next test
    world.kubeconfig = None
    usual = ("--take-ownership", "--set", "replicas=0")
    out = helm_there("upgrade", "--install", "r", str(CHART), "--create-namespace", *usual)
    expect("rollout status deployment/hvd-operator" in out, "the notes are shown", out)

    def deployment() -> dict:
        return json.loads(
            kubectl("get", "deployment", "hvd-operator", "-n", "packaging-helm", "-o", "json")
        )

    expect(deployment()["spec"]["replicas"] == 0, "the value counts")
    helm_there("upgrade", "r", str(CHART), "--reuse-values", "--set", "logJson=true")
    args = deployment()["spec"]["template"]["spec"]["containers"][0]["args"]
    expect("--log-json" in args and deployment()["spec"]["replicas"] == 0, "upgraded", str(args))
    helm_there("uninstall", "r")
    left = kubectl("get", "clusterroles,deployments", "-A", "-o", "name", "-l", "helm.sh/chart")
    expect(not left.strip(), "everything is gone", left)
    kept = kubectl("get", "crd", "horovodjobs.ringmaster.dev", "-o", "name")
    expect("horovodjobs" in kept, "but for the definition")


def account(ns: str) -> Path:
    """A kubeconfig of the operator's account in that namespace."""
    token = kubectl("create", "token", "hvd-operator", "-n", ns).strip()
    admin = yaml.safe_load((RUN / "admin.kubeconfig").read_text())
    admin["users"] = [{"name": "u", "user": {"token": token}}]
    for c in admin["contexts"]:
        c["context"] |= {"user": "u", "namespace": ns}
    path = RUN / f"{ns}.kubeconfig"
    path.write_text(yaml.safe_dump(admin))
    path.chmod(0o600)
    return path


def helm_test(kubeconfig: Path) -> tuple[bool, str]:
    """This test plays the kubelet: it runs the pod's program with the pod's arguments. Has it passed, and its log."""
    there = ["-n", NS_TEST, "--kubeconfig", str(RUN / "admin.kubeconfig")]
    with subprocess.Popen(
        [HELM, "test", "t", *there], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as p:
        pod = wait(
            "the pod",
            lambda: next(
                (x for x in api.items(NS_TEST, "pods") if x["status"]["phase"] == "Pending"), None
            ),
        )
        args = pod["spec"]["containers"][0]["args"]
        done = subprocess.run(
            [BIN / "hvd-operator", f"--kubeconfig={kubeconfig}", *args],
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        name = pod["metadata"]["name"]
        api.patch_pod(NS_TEST, name, {"phase": "Failed" if done.returncode else "Succeeded"})
        out, _ = p.communicate(timeout=100)
    told = done.stdout + done.stderr
    expect((p.returncode == 0) == (done.returncode == 0), "helm says the same", out.decode(), told)
    return done.returncode == 0, told


@suite.test
def helm_test_passes_only_while_an_operator_acts() -> None:
    """With the rights that the chart gives to the account."""
    world.stop()
    world.kubeconfig = None
    times = ("lease-duration=3s", "renew-deadline=2s", "retry-period=200ms")
    extra = ",".join(f"extraArgs[{i}]=--leader-elect-{t}" for i, t in enumerate(times))
    usual = ("--take-ownership", "--set", f"replicas=0,{extra}")
    there = ("-n", NS_TEST, "--kubeconfig", str(RUN / "admin.kubeconfig"))
    make_namespace(NS_TEST)
    kubectl("label", "namespace", NS_TEST, "pod-security.kubernetes.io/enforce=restricted")
    helm("install", "t", str(CHART), *there, *usual)
    kubeconfig = account(NS_TEST)
    passed, told = helm_test(kubeconfig)
    expect(not passed and "no operator held it" in told, "without an operator it fails", told)
    options = ("--leader-elect", "--http-port=0", *(f"--leader-elect-{t}" for t in times))
    operator = Operator(BIN / "hvd-operator", kubeconfig, LOG, *options)
    try:
        passed, told = helm_test(kubeconfig)
    finally:
        operator.stop()
        helm("uninstall", "t", *there)
    expect(passed and "failed: " not in told, "with one it passes", told)


@suite.test
def the_api_server_takes_all_of_it() -> None:
    make_namespace("ringmaster")
    make_namespace("mpi-operator")
    overlays = ("namespaced", "mpi-operator", "gang", "kueue", "page", "page-namespaced")
    sets = {f: kustomize(f) for f in (".", *(f"overlays/{name}" for name in overlays))}
    sets["crd/mpijob"] = kustomize("crd/mpijob")
    for value in (
        "replicas=1,leaderElection=false",
        "rbac.namespaced=true",
        "gangScheduler=volcano",
        "rbac.kueue=true",
        "page.enabled=true,rbac.namespaced=true",
        "crds.mpijob=true",
        "podAnnotations.a=b,podLabels.a=b,nodeSelector.a=b,priorityClassName=p,logJson=true",
        "tolerations[0].operator=Exists,imagePullSecrets[0].name=s",
    ):
        sets["helm, " + value] = template("--set", value)
    for what, objects in sets.items():
        try:
            kubectl(
                "apply", "--dry-run=server", "--server-side", "--force-conflicts", "--validate=strict",
                "-f", "-", stdin=text_of(objects),
            )  # fmt: skip
        except Failed as e:
            raise AssertionError(f"{what}: {e}") from None


@suite.test
def the_pods_of_the_operator_are_restricted() -> None:
    """Namespace ringmaster enforces the standard; a Deployment is only warned about, so its pod is tried."""
    ns = "packaging-restricted"
    make_namespace(ns)
    kubectl("label", "namespace", ns, "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
    account = manifest("v1", "ServiceAccount", "hvd-operator")
    kubectl("apply", "-n", ns, "-f", "-", stdin=text_of([account]))
    deployment = next(o for o in kustomize(".") if o["kind"] == "Deployment")
    pod = manifest("v1", "Pod", "p", spec=deployment["spec"]["template"]["spec"])
    kubectl("create", "--dry-run=server", "-n", ns, "-f", "-", stdin=text_of([pod]))
    container = pod["spec"]["containers"][0]["securityContext"]
    expect(container["readOnlyRootFilesystem"], "and cannot write to its root")
