#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures hvd-operator from outside, on a real control plane whose nodes kwok simulates (100 nodes of 16 GPUs;
pods run as soon as they are bound). Called by operator.sh, in the control plane's network namespace.
usage: bench_operator.py HVD-OPERATOR [--peer] [--only CASE,...] [--kinds KIND,...] [--check] [--out DIR]

A case is a fresh operator, some jobs posted over four connections, and the time from the first POST until
the last worker pod was seen by a watch of the bench's own, until the last worker ran, and until the last
job had its condition Running. Processor time is the operator's, user and kernel, until 3 s after that; peak
memory is VmHWM, reset before the first POST; requests are the operator's in the audit log, Events
included, without watches and leases. `foreign` is processor time that neither operator, cluster nor bench used:
where it is large, compare processor time, memory and requests only. The p99 of a reconcile is read from the
operator's own histogram: the upper edge of the first bucket below which 99% of the reconciles lie, so it is an
upper bound; it includes the response time of the API server.

--peer also measures mpi-operator (tests/operator/peer.sh); without it goals refer to its recorded figures
(PEER_ONCE). --check fails when a goal is missed. The tables are written to DIR/operator.md (default build/bench).
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import kwok
from kwok import RUN, Api, Audit, Daemons, Watch, account, cluster_pids, cpu, machine, memory_mib, wait

ROOT = Path(__file__).resolve().parents[2]
NS = "bench"
PORT = 18080
RAISED = ("--kube-api-qps", "2000", "--kube-api-burst", "4000")
NAME = re.compile(rb'"metadata":\{"name":"([^"]+)"')

# name: jobs at once, workers a job, GPUs a worker, are limits raised, how often
CASES = {
    "1x8": (1, 8, 1, False, 20),
    "40x8": (40, 8, 1, False, 1),
    "200x8": (200, 8, 1, True, 1),
    "1000x2": (1000, 2, 0, True, 1),
    "100x100": (100, 100, 0, True, 1),
}
PEER_CASES = ("1x8", "40x8", "200x8")
# Figures of mpi-operator v0.8.2 on an idle machine with two processors: seconds until the pods and until
# Running, processor seconds, MiB, requests.
PEER_ONCE = {
    "1x8": (0.418, 0.826, 0.05, 56.0, 21),
    "40x8": (101.6, 123.1, 1.74, 67.5, 680),
    "200x8": (33.7, 36.2, 6.59, 113.1, 3591),
}


def horovodjob(name: str, workers: int, gpus: int) -> tuple[str, dict]:
    template = {"spec": {"containers": [container(gpus)]}}
    spec = {"replicaSpecs": {"Worker": {"replicas": workers, "template": template}}}
    return f"/apis/ringmaster.dev/v1beta1/namespaces/{NS}/horovodjobs", {
        "apiVersion": "ringmaster.dev/v1beta1",
        "kind": "HorovodJob",
        "metadata": {"name": name},
        "spec": spec,
    }


def mpijob(name: str, workers: int, gpus: int) -> tuple[str, dict]:
    def role(n: int, gpus: int) -> dict:
        return {"replicas": n, "template": {"spec": {"containers": [container(gpus)]}}}

    return f"/apis/kubeflow.org/v2beta1/namespaces/{NS}/mpijobs", {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"mpiReplicaSpecs": {"Launcher": role(1, 0), "Worker": role(workers, gpus)}},
    }


def container(gpus: int) -> dict:
    out = {"name": "train", "image": "train", "command": ["train"]}
    return out | ({"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {})


KINDS = {"HorovodJob": horovodjob, "MPIJob": mpijob}


class Operator:
    """One of the two programs, fresh, as its service account."""

    def __init__(self, program: Path, who: tuple[str, Path], is_peer: bool, limits: tuple[str, ...]):
        user, config = who
        self.is_peer, self.user = is_peer, user
        args = [*limits]
        if is_peer:
            args += ["--kubeConfig", str(config), "--lock-namespace", "mpi-operator"]
            if limits:
                args += ["--controller-queue-rate-limit", "2000", "--controller-queue-burst", "4000"]
            with contextlib.suppress(kwok.Refused):  # of one that was killed: it would be waited for
                Api().call("DELETE", f"{LEASES}/mpi-operator")
        else:
            args += ["--kubeconfig", str(config), "--http-port", str(PORT)]
        with open(RUN / "log/bench-operator.log", "ab") as log:
            self.process = subprocess.Popen([str(program), *args], stdout=log, stderr=log)
        self.pid = self.process.pid
        wait("the operator", self.is_ready, 60)

    def is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the operator ended; see {RUN}/log/bench-operator.log")
        if not self.is_peer:
            return get("/readyz")[0] == 200
        try:
            return bool(Api().call("GET", f"{LEASES}/mpi-operator")["spec"].get("holderIdentity"))
        except kwok.Refused:
            return False

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


LEASES = "/apis/coordination.k8s.io/v1/namespaces/mpi-operator/leases"


def get(path: str) -> tuple[int, str]:
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
    try:
        c.request("GET", path)
        answer = c.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        c.close()


def looks() -> Counter:
    """Looks at a job by the upper edge of their bucket, cumulative."""
    found = re.findall(
        r'^hvd_operator_sync_duration_seconds_bucket\{.*?le="([^"]+)"\} (\d+)$', get("/metrics")[1], re.M
    )
    out: Counter = Counter()
    for edge, n in found:
        out[float(edge)] += int(n)
    return out


def percentile(before: Counter, after: Counter, share: float = 0.99) -> float | None:
    grown = {edge: after[edge] - before[edge] for edge in sorted(after)}
    total = grown.get(float("inf"), 0)
    return next((edge for edge, n in grown.items() if n >= share * total), None) if total else None


class Sight:
    """What the bench's own watches saw of one run, by name and time."""

    def __init__(self, path: str, prefix: str):
        self.prefix = prefix.encode()
        self.pods: dict[bytes, float] = {}
        self.running: dict[bytes, float] = {}
        self.jobs: dict[str, float] = {}
        self.watches = [Watch(f"/api/v1/namespaces/{NS}/pods", self.pod), Watch(path, self.job)]

    def pod(self, line: bytes, now: float) -> None:
        found = NAME.search(line, 0, 400)
        if found and found[1].startswith(self.prefix) and b"-worker-" in found[1]:
            self.pods.setdefault(found[1], now)
            if found[1] not in self.running and b'"phase":"Running"' in line:
                self.running[found[1]] = now

    def job(self, line: bytes, now: float) -> None:
        if b'"type":"Running"' not in line:
            return
        job = json.loads(line)["object"]
        for c in job.get("status", {}).get("conditions", []):
            if c["type"] == "Running" and c["status"] == "True":
                self.jobs.setdefault(job["metadata"]["name"], now)

    def stop(self) -> list[str]:
        errors = [w.error for w in self.watches if w.error]
        for w in self.watches:
            w.stop()
        return errors


def post(kind: str, names: list[str], workers: int, gpus: int) -> None:
    left, lock = list(reversed(names)), threading.Lock()
    errors: list[str] = []

    def work() -> None:
        api = Api()
        try:
            while True:
                with lock:
                    if not left:
                        return
                    name = left.pop()
                path, body = KINDS[kind](name, workers, gpus)
                api.call("POST", path, body)
        except Exception as e:
            errors.append(repr(e))

    threads = [threading.Thread(target=work) for _ in range(min(4, len(names)))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise RuntimeError(errors[0])


def one_run(op: Operator, kind: str, jobs: int, workers: int, gpus: int, limit: float) -> dict:
    """One measured run on an operator that is up; leaves its jobs."""
    prefix = f"b{int(time.time() * 10) % 1000000}-"
    path = KINDS[kind]("", 0, 0)[0]
    sight = Sight(path, prefix)
    pids = cluster_pids()
    with open(f"/proc/{op.pid}/clear_refs", "w") as f:
        f.write("5")
    audit = Audit(op.user)
    idle_mib = memory_mib(op.pid, "VmRSS")
    before_looks = Counter() if op.is_peer else looks()
    own0, op0, busy0 = sum(own()), cpu(op.pid), machine()
    others0 = {p: sum(cpu(p)) for p in pids}
    start = time.monotonic()
    post(kind, [f"{prefix}{i}" for i in range(jobs)], workers, gpus)
    want, errors = jobs * workers, []

    def done() -> bool:
        return len(sight.pods) >= want and len(sight.running) >= want and len(sight.jobs) >= jobs

    def is_over() -> bool:
        return done() or op.process.poll() is not None or any(w.error for w in sight.watches)

    try:
        wait(
            "all of it",
            is_over,
            limit,
            0.002 if jobs < 10 else 0.05,
        )
    except kwok.Late as e:
        errors.append(str(e))
    time.sleep(3)  # what is written at the end counts, too
    if op.process.poll() is not None:
        raise RuntimeError(f"the operator ended with {op.process.returncode}")
    op1, busy1, own1 = cpu(op.pid), machine(), sum(own())
    others = sum(sum(cpu(p)) - others0[p] for p in pids if Path(f"/proc/{p}").exists())
    errors += sight.stop()
    kinds, codes = audit.count()
    used = sum(op1) - sum(op0)

    def at(seen: dict, n: int) -> float | None:
        return round(max(seen.values()) - start, 3) if len(seen) >= n else None

    return {
        "jobs": jobs,
        "workers": workers,
        "pods_s": at(sight.pods, want),
        "running_s": at(sight.running, want),
        "job_s": at(sight.jobs, jobs),
        "cpu_s": round(used, 2),
        "cpu_user_s": round(op1[0] - op0[0], 2),
        "peak_mib": round(memory_mib(op.pid, "VmHWM"), 1),
        "idle_mib": round(idle_mib, 1),
        "rss_mib": round(memory_mib(op.pid, "VmRSS"), 1),
        "requests": sum(n for k, n in kinds.items() if not k.startswith("watch") and "leases" not in k),
        "kinds": dict(kinds.most_common()),
        "codes": dict(codes),
        "p99_s": None if op.is_peer else percentile(before_looks, looks()),
        "cluster_s": round(others, 1),
        "foreign_s": round(busy1[0] - busy0[0] - used - others - (own1 - own0), 1),
        "busy": round((busy1[0] - busy0[0]) / (busy1[1] - busy0[1]), 2),
        "errors": errors,
    }


def own() -> tuple[float, float]:
    return cpu(kwok.os.getpid())


def clear(kind: str) -> None:
    """Deletes the jobs, then what they own: the garbage collector of a control plane needs minutes for that."""
    api = Api(600)
    core = f"/api/v1/namespaces/{NS}"
    policy = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    api.call("DELETE", KINDS[kind]("", 0, 0)[0], policy)
    time.sleep(1)  # the operator knows that they are gone, and replaces no pod
    jobs = f"/apis/batch/v1/namespaces/{NS}/jobs"
    owned = (jobs, f"{core}/pods", f"{core}/services", f"{core}/secrets", f"{core}/configmaps")
    for path in owned:  # in parts: the API server gives a request a minute

        def gone(path: str = path) -> bool:
            api.call("DELETE", f"{path}?limit=500", policy | {"gracePeriodSeconds": 0})
            left = api.call("GET", f"{path}?limit=2")["items"]
            return all(o["metadata"]["name"] == "kube-root-ca.crt" for o in left)

        wait(f"nothing is left at {path}", gone, 600, 0.05)


def case(name: str, kind: str, program: Path, who: tuple[str, Path], is_peer: bool) -> dict:
    jobs, workers, gpus, is_raised, runs = CASES[name]
    op = Operator(program, who, is_peer, RAISED if is_raised else ())
    looks0 = Counter() if is_peer else looks()
    rows = []
    try:
        if is_peer:
            time.sleep(3)  # its caches fill; it does not report when
            runs = min(runs, 5)
        for _ in range(runs):
            rows.append(one_run(op, kind, jobs, workers, gpus, 60 + jobs * workers * 0.5))
            if name != "100x100":
                clear(kind)
        out = median(rows)
        if not is_peer:
            now = looks()
            out["p99_s"] = percentile(looks0, now)
            out["looks"] = {edge: n - looks0[edge] for edge, n in sorted(now.items())}
        if name == "100x100":
            op.stop()  # and again, with all pods there: what the first lists cost
            op = Operator(program, who, is_peer, RAISED)
            out["again_mib"] = round(memory_mib(op.pid, "VmHWM"), 1)
            clear(kind)
    finally:
        op.stop()
    return out | {"case": name, "kind": kind, "peer": is_peer, "runs": runs}


def median(rows: list[dict]) -> dict:
    """The median of each column; for a column without numbers, the last row's value."""
    out = dict(rows[-1])
    for key, value in out.items():
        seen = sorted(r[key] for r in rows if isinstance(r[key], (int, float)))
        if isinstance(value, (int, float)) and seen:
            out[key] = seen[len(seen) // 2]
    out["peak_mib"] = max(r["peak_mib"] for r in rows)
    out["errors"] = [e for r in rows for e in r["errors"]]
    return out


# --- goals and report ---------------------------------------------------------------------
def goals(rows: list[dict]) -> list[tuple[str, float | None, float]]:
    """What is to be at most what: sentence, figure, limit."""
    peers = {c: (p[0], p[1]) for c, p in PEER_ONCE.items()}
    peers |= {
        r["case"]: (r["pods_s"], r["job_s"]) for r in rows if r["peer"] and r["pods_s"] and r["job_s"]
    }
    out: list[tuple[str, float | None, float]] = []
    for r in rows:
        if r["peer"]:
            continue
        what = f"{r['kind']} {r['case']}"
        if r["case"] == "200x8":
            out.append((f"{what}: processor seconds", r["cpu_s"], 1.3))
            out.append((f"{what}: peak MiB", r["peak_mib"], 25))
            out.append((f"{what}: pods, s, the peer's at most", r["pods_s"], peers["200x8"][0]))
            out.append((f"{what}: Running, s, the peer's at most", r["job_s"], peers["200x8"][1]))
        if r["case"] == "40x8":
            out.append(
                (f"{what}: pods, s, a tenth of the peer's at most", r["pods_s"], peers["40x8"][0] / 10)
            )
        if r["case"] == "1x8":
            out.append((f"{what}: p99 of a look, s", r["p99_s"], 0.05))
            out.append((f"{what}: pods, s, the peer's at most", r["pods_s"], peers["1x8"][0]))
        if r["case"] == "100x100":
            out.append((f"{what}: peak MiB", max(r["peak_mib"], r.get("again_mib", 0)), 64))
        if r["workers"] == 8:
            limit = 13 if r["kind"] == "HorovodJob" else 17
            out.append((f"{what}: requests a job", round(r["requests"] / r["jobs"], 2), limit))
        out.append((f"{what}: errors", float(len(r["errors"])), 0))
    return out


HEAD = "| case | operator | pods | workers run | Running | CPU | of it user | peak | requests a job | p99 of a look | cluster's CPU | foreign CPU | busy |"


def table(rows: list[dict]) -> str:
    def s(value: float | None, unit: str = " s") -> str:
        return "-" if value is None else f"{value:g}{unit}"

    lines = [HEAD, "|" + "---|" * HEAD.count(" | ") + "---|"]
    for r in rows:
        who = "mpi-operator" if r["peer"] else f"ours, {r['kind']}"
        again = f" ({r['again_mib']} listing)" if "again_mib" in r else ""
        p99 = "-" if r["p99_s"] is None else f"<= {r['p99_s'] * 1000:g} ms"
        lines.append(
            f"| {r['case']} | {who} | {s(r['pods_s'])} | {s(r['running_s'])} | {s(r['job_s'])} | {s(r['cpu_s'])} | "
            f"{s(r['cpu_user_s'])} | {r['peak_mib']:.1f} MiB{again} | {r['requests'] / r['jobs']:.1f} | {p99} | "
            f"{s(r['cluster_s'])} | {s(r['foreign_s'])} | {r['busy']:.0%} |"
        )
    return "\n".join(lines)


def report(rows: list[dict], command: str) -> str:
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    text = f"`{command}`, {day}:\n\n{table(rows)}\n\n| goal | at most | is |\n|---|---|---|\n"
    for what, value, limit in goals(rows):
        shown = "not reached" if value is None else f"{value:g}{'' if value <= limit else ' (missed)'}"
        text += f"| {what} | {limit:g} | {shown} |\n"
    return text


def write(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "operator.md").write_text(text)


def kubectl_apply(what: str) -> None:
    command = [str(RUN / "bin/kubectl"), f"--server=https://{kwok.ADDRESS}:6443"]
    for option, file in (
        ("certificate-authority", "ca.crt"),
        ("client-certificate", "admin.crt"),
        ("client-key", "admin.key"),
    ):
        command.append(f"--{option}={RUN}/pki/{file}")
    command += ["apply", "--server-side", "--force-conflicts", what]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)


def install(crd: Path | None) -> dict[str, tuple[str, Path]]:
    """Custom resources and accounts: of ours by our own manifests, of the peer by its own."""
    kubectl_apply(f"-f={ROOT}/manifests/operator/namespace.yaml")
    kubectl_apply(f"-k={ROOT}/manifests/rbac")
    kubectl_apply(f"-k={ROOT}/manifests/crd")
    kubectl_apply(f"-f={crd}/kubeflow.org_mpijobs.yaml" if crd else f"-k={ROOT}/manifests/crd/mpijob")
    who = {"ours": account("ringmaster", "hvd-operator", "hvd-operator")}
    if crd:
        kubectl_apply(f"-f={crd}/cluster-role.yaml")
        who["peer"] = account("mpi-operator", "mpi-operator", "mpi-operator")
    api = Api()
    api.apply("/api/v1/namespaces", {"metadata": {"name": NS}})
    wait(
        "the default account", lambda: api.call("GET", f"/api/v1/namespaces/{NS}/serviceaccounts")["items"]
    )
    for kind in KINDS:
        wait(kind, lambda k=kind: served(api, KINDS[k]("", 0, 0)[0]))
    return who


def served(api: Api, path: str) -> bool:
    try:
        api.call("GET", path)
        return True
    except kwok.Refused:
        return False


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program", type=Path)
    p.add_argument("--peer", action="store_true")
    p.add_argument("--peer-folder", type=Path)
    p.add_argument("--only", default=",".join(CASES), help=f"of {', '.join(CASES)}")
    p.add_argument("--kinds", default=",".join(KINDS))
    p.add_argument("--nodes", type=int, default=100)
    p.add_argument("--gpus", type=int, default=16)
    p.add_argument("--check", action="store_true")
    p.add_argument("--out", metavar="DIR", type=Path, default=ROOT / "build/bench")
    o = p.parse_args()
    cases = [c for c in CASES if c in o.only.split(",")]
    kinds = [k for k in KINDS if k in o.kinds.split(",")]
    who = install(o.peer_folder / "src/manifests/base" if o.peer else None)
    daemons = Daemons(o.nodes, o.gpus)
    rows: list[dict] = []
    try:
        for name in cases:
            todo = [(k, o.program, who["ours"], False) for k in kinds]
            if o.peer and name in PEER_CASES:
                todo.append(("MPIJob", o.peer_folder / "mpi-operator", who["peer"], True))
            for kind, program, account_of, is_peer in todo:
                rows.append(case(name, kind, program, account_of, is_peer))
                print(json.dumps(rows[-1]), flush=True)
    finally:
        daemons.stop()
    words = ["make bench-operator"]
    words += ["OPERATOR_BENCH='" + " ".join(a for a in sys.argv[2:] if keep(a)) + "'"]
    text = report(rows, " ".join(words))
    print("\n" + text)
    write(o.out, text)
    missed = [g for g in goals(rows) if g[1] is None or g[1] > g[2]]
    return 1 if o.check and missed else 0


def keep(argument: str) -> bool:
    """Whether the argument was typed by the user, not added by operator.sh."""
    return argument.startswith(("--peer", "--only", "--kinds")) and "folder" not in argument


if __name__ == "__main__":
    sys.exit(main())
