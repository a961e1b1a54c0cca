# SPDX-License-Identifier: Apache-2.0
"""What the packaging tests share: the API server, the operator, kubectl and Helm, YAML."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
from pathlib import Path

import yaml
from api import Api, Operator, Suite, install
from ports import free_port

ROOT = Path(__file__).resolve().parents[2]
RUN = Path(os.environ["RM_RUN"])
BIN = Path(os.environ["BIN"])
STAGE = BIN.parents[1] / "stage"
HELM = os.environ["HELM"]
PEER = Path(os.environ["PEER"])
MANIFESTS = ROOT / "manifests"
CHART = ROOT / "charts/ringmaster"
LOG = RUN / "log/operator-under-test.log"

suite = Suite()
api = Api(str(RUN / "bin/kubectl"), str(RUN / "admin.kubeconfig"))


class World:
    """The one operator of the suite, started when a test first asks for it."""

    operator: Operator | None = None
    kubeconfig: Path | None = None
    port = 0

    def installed(self) -> Path:
        self.kubeconfig = self.kubeconfig or install(api, RUN)
        return self.kubeconfig

    def run(self) -> Operator:
        kubeconfig = self.installed()
        if not self.operator or self.operator.ended():
            self.port = free_port()
            port = str(self.port)
            self.operator = Operator(BIN / "hvd-operator", kubeconfig, LOG, "--http-port", port)
        return self.operator

    def looks(self) -> int:
        """How many looks at jobs the operator has finished; 0 before it is ready."""
        at = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            at.request("GET", "/metrics")
            text = at.getresponse().read().decode()
        except OSError:
            return 0
        finally:
            at.close()
        found = re.findall(r'^hvd_operator_sync_total\{result="ok"\} (\d+)', text, re.MULTILINE)
        return int(found[0]) if found else 0

    def stop(self) -> None:
        if self.operator:
            self.operator.stop()


world = World()


class Failed(Exception):
    """A program that exited non-zero; the text is its standard error."""


def run(*command: str, stdin: str | None = None) -> str:
    """Its output. The time is there against hangs: images of hundreds of MiB are among what is run."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=400, check=False)
    if done.returncode != 0:
        lines = done.stderr.splitlines()  # helm reports each link in files/
        raise Failed("\n".join(x for x in lines if "found symbolic link" not in x).strip())
    return done.stdout


def kubectl(*args: str, stdin: str | None = None) -> str:
    return run(*api.kubectl, *args, stdin=stdin)


def apply(*objects: dict, ns: str = "default") -> None:
    """Those that name no namespace of their own are made in ns."""
    kubectl("apply", "-n", ns, "-f", "-", stdin=text_of([*objects]))


def helm(*args: str) -> str:
    return run(HELM, *args)


def kustomize(folder: str) -> list[dict]:
    return read(run(api.kubectl[0], "kustomize", str(MANIFESTS / folder)))


def read(text: str) -> list[dict]:
    return [o for o in yaml.load_all(text, Loader=yaml.CSafeLoader) if o]


def text_of(objects: list[dict]) -> str:
    return yaml.dump_all(objects, Dumper=yaml.CSafeDumper)


def make_namespace(name: str) -> str:
    if not any(n["metadata"]["name"] == name for n in api.call("GET", "/api/v1/namespaces")["items"]):
        api.namespace(name)
    return name
