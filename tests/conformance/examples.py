#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Horovod's own examples, unmodified, on N ranks and prints a table of what became of each.

    examples.py DIR [NAME...]     DIR: horovod/examples; NAME: part of a path in it

Without a network: small data sets of the same form lie where the examples would put what they download. Two
values are replaced to get there: the published hash of mnist.npz stands for that of our file (site below), and
text8.zip has the published size. Examples in keras/, tensorflow/ and elastic/tensorflow/ are for TensorFlow 1
and run by horovod.compat.tf1.

    ran        exit code 0
    trained    stopped at the limit: it had printed a loss, a step or a rate, and no rank had failed
    failed     anything else; the reason is the last error in the ranks' output
    left out   it imports what is not installed here, or cannot run by itself
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import run

MNIST_SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
TEXT8_BYTES = 31344016
FOR_TENSORFLOW_1 = ("keras/", "tensorflow/", "elastic/tensorflow/")
SMALL_MODEL = "--model MobileNetV2 --batch-size 2 --num-iters 2 --num-batches-per-iter 2 --no-cuda"
# Their own options, so that they end sooner.
OPTIONS = {
    "elastic/pytorch/pytorch_mnist_elastic.py": "--epochs 1 --no-cuda",
    "elastic/pytorch/pytorch_imagenet_resnet50_elastic.py": "--epochs 1 --batch-size 2 --no-cuda",
    "elastic/pytorch/pytorch_synthetic_benchmark_elastic.py": SMALL_MODEL.replace("MobileNetV2", "resnet18")
    + " --num-warmup-batches 1",
    "elastic/tensorflow/tensorflow_keras_mnist_elastic.py": "--epochs 2 --batches-per-epoch 40",
    "elastic/tensorflow2/tensorflow2_synthetic_benchmark_elastic.py": f"{SMALL_MODEL} --num-warmup-batches 1",
    "keras/keras_imagenet_resnet50.py": "--epochs 1 --batch-size 4 --val-batch-size 4",
    "keras/keras_mnist_advanced.py": "--epochs 6",
    "pytorch/pytorch_imagenet_resnet50.py": "--epochs 1 --batch-size 4 --val-batch-size 4 --no-cuda",
    "pytorch/pytorch_lightning_mnist.py": "--epochs 1 --no-cuda",
    "pytorch/pytorch_mnist.py": "--epochs 2 --no-cuda",
    "pytorch/pytorch_synthetic_benchmark.py": SMALL_MODEL.replace("MobileNetV2", "resnet18")
    + " --num-warmup-batches 1",
    "tensorflow/tensorflow_synthetic_benchmark.py": f"{SMALL_MODEL} --num-warmup-batches 1",
    "tensorflow2/tensorflow2_keras_synthetic_benchmark.py": SMALL_MODEL,
    "tensorflow2/tensorflow2_synthetic_benchmark.py": f"{SMALL_MODEL} --num-warmup-batches 1",
}
DATA_SERVICE = "needs a second job, which serves the data"
NOT_ALONE = {
    "tensorflow2/tensorflow2_mnist_data_service.py": DATA_SERVICE,
    "tensorflow2/tensorflow2_mnist_data_service_train_fn_compute_side_dispatcher.py": DATA_SERVICE,
    "tensorflow2/tensorflow2_mnist_data_service_train_fn_training_side_dispatcher.py": DATA_SERVICE,
}
# Written as sitecustomize.py: every Python of the ranks imports it.
SITE = """
import hashlib
real = hashlib.sha256
class Sha256:
    def __init__(self, *words, **more):
        self.inner = real(*words, **more)
    def hexdigest(self):
        digest = self.inner.hexdigest()
        return "{published}" if digest == "{ours}" else digest
    def __getattr__(self, name):
        return getattr(self.inner, name)
hashlib.sha256 = Sha256
"""
# Makes the arrays, with the NumPy of the ranks: ten blurred shapes with noise.
MAKE_MNIST = """
import sys
import numpy as np
random = np.random.default_rng(1)
shapes = random.random((10, 7, 7)).repeat(4, 1).repeat(4, 2)
sets = {}
for name, n in (("train", 1024), ("test", 512)):
    y = np.arange(n) % 10
    x = (200 * shapes[y] + 55 * random.random((n, 28, 28))).astype(np.uint8)
    sets.update({f"x_{name}": x, f"y_{name}": y.astype(np.uint8)})
    for kind, array in (("images-idx3", x), ("labels-idx1", sets[f"y_{name}"])):
        head = np.array([0x800 + array.ndim, *array.shape], dtype=">i4").tobytes()
        with open(f"{sys.argv[2]}/{name.replace('test', 't10k')}-{kind}-ubyte", "wb") as f:
            f.write(head + array.tobytes())
np.savez(sys.argv[1], **sets)
"""
ERROR = re.compile(r"^\[\d+\]<std\w+>:((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*)")
PROGRESS = re.compile(r"(?i)(loss|step|img/sec|epoch)\D{0,12}\d")
PLACE = re.compile(r"^\[\d+\]<std\w+>:")


def needs(file):
    """Modules that an example imports anywhere and that do not lie beside it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
            if node.module == "horovod":
                names = [f"horovod.{alias.name}" for alias in node.names]
        for name in names:
            words = name.split(".")
            found.add(".".join(words[:2]) if words[0] == "horovod" else words[0])
    beside = {path.stem for path in file.parent.glob("*.py")}
    return found - set(sys.stdlib_module_names) - beside - {"horovod"}


class Data:
    """What the examples would download, and the folder they think is their user's."""

    def __init__(self, world, out, examples):
        self.home, self.raw = out / "home", out / "raw"
        keras = self.home / ".keras/datasets"
        for folder in (keras, self.raw, out / "site"):
            folder.mkdir(parents=True, exist_ok=True)
        first = keras / "mnist.npz"
        subprocess.run([world.python, "-c", MAKE_MNIST, first, self.raw], env=world.env, check=True)
        for rank in range(world.np):
            for name in (f"mnist-{rank}.npz", f"MNIST-data-{rank}"):
                shutil.copy(first, keras / name)
        ours = hashlib.sha256(first.read_bytes()).hexdigest()
        (out / "site/sitecustomize.py").write_text(SITE.format(ours=ours, published=MNIST_SHA256))
        world.env["PYTHONPATH"] = os.pathsep.join([str(out / "site"), world.env["PYTHONPATH"]])
        world.env["HOME"] = str(self.home)
        if any("imagenet" in path.name for path in examples):
            self.make_imagenet()
        self.text8 = out / "text8.zip"
        if any("word2vec" in path.name for path in examples):
            self.make_text8()

    def make_imagenet(self):
        """A folder for each of 1000 classes; 16 of them have one image."""
        for kind in ("train", "validation"):
            for label in range(1000):
                folder = self.home / f"imagenet/{kind}/n{label:08}"
                folder.mkdir(parents=True, exist_ok=True)
                if label < 16:
                    pixels = bytes((label * 16 + i) % 256 for i in range(32 * 32 * 3))
                    (folder / "image.ppm").write_bytes(b"P6 32 32 255\n" + pixels)

    def make_text8(self):
        """Words of a vocabulary of 60,000, the first ones more often, in a file of the published size."""
        text, word = [], 1
        n = TEXT8_BYTES - 200
        while n > 0:
            word = (word * 48271) % 2147483647
            text.append(f"w{min(word % 60000, word // 60000 % 60000)}")
            n -= len(text[-1]) + 1
        text = " ".join(text)
        head = 30 + 46 + 22 + 2 * len("text8")
        with zipfile.ZipFile(self.text8, "w", zipfile.ZIP_STORED) as f:
            f.writestr("text8", text.ljust(TEXT8_BYTES - head)[: TEXT8_BYTES - head])

    def lay(self, world, folder):
        """Files in the folder in which an example runs."""
        for name in ("MNIST", *(f"data-{rank}/MNIST" for rank in range(world.np)), "data/MNIST"):
            shutil.copytree(self.raw, folder / name / "raw", dirs_exist_ok=True)
        if self.text8.exists():
            for rank in range(world.np):
                os.link(self.text8, folder / f"text8-{rank}.zip")


def launch(world, data, folder, file, name):
    """Runs one example; (exit code or None at the limit, output)."""
    data.lay(world, folder)
    way = ["-m", "horovod.compat.tf1"] if name.startswith(FOR_TENSORFLOW_1) else []
    words = [*way, str(file), *OPTIONS.get(name, "").split()]
    with (folder / "output").open("wb") as output:
        child = run.start_ranks(world, False, words, folder, output)
        try:
            code = child.wait(timeout=world.args.limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            said = (folder / "output").read_text(errors="replace")  # not what it prints when it is stopped
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=40)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return code, said


def outcome(code, said):
    """(ran, trained or failed; what an example last said about itself)."""
    lines = [line for line in re.split(r"[\r\n]+", said) if line.strip()]
    progress = [PLACE.sub("", line).strip() for line in lines if PROGRESS.search(PLACE.sub("", line))]
    if code == 0:
        return "ran", progress[-1] if progress else ""
    errors = [m[1] for m in map(ERROR.match, lines) if m]
    if code is None and progress and not errors:
        return "trained", progress[-1]
    return "failed", (errors or lines or ["no output"])[-1]


def arguments(words):
    parser = argparse.ArgumentParser(prog="examples.py", description="Horovod's own examples on our ranks")
    parser.add_argument("examples", type=Path, help="horovod/examples")
    parser.add_argument("names", nargs="*", help="parts of paths in it; none: all")
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--python", default="tf215", help="a name of tests/setup/venv, or a path")
    parser.add_argument("--keras2", action="store_true", help="as run.py")
    parser.add_argument("--limit", type=float, default=120, help="seconds for each example")
    parser.add_argument("--out", type=Path, help="where they run; default build/conformance/examples-...")
    args = parser.parse_args(words)
    args.launcher, args.horovod = "horovodrun", ""
    name = f"examples-{re.sub('[^a-z0-9]+', '_', args.python.lower())}{'-keras2' * args.keras2}"
    args.out = (args.out or run.ROOT / os.environ.get("BUILD", "build") / "conformance" / name).resolve()
    return args


def files_of(args):
    top = args.examples.resolve()
    files = sorted(path for path in top.rglob("*.py") if not args.names or
                   any(name in str(path.relative_to(top)) for name in args.names))  # fmt: skip
    if not files:
        run.die(f"EXAMPLES={args.examples}: no such examples in it")
    return top, files


def main(words):
    args = arguments(words)
    top, files = files_of(args)
    shutil.rmtree(args.out, ignore_errors=True)
    world = run.World(args)
    wanted = {name for file in files for name in needs(file)}
    if wanted & {"keras", "tensorflow", "torch"}:
        world.env["PYTHONPATH"] += os.pathsep + run.site_packages(run.setup("venv.sh", "examples"))
    missing = world.lacking(wanted)
    data = Data(world, args.out, files)
    counts = dict.fromkeys(("ran", "trained", "failed", "left out"), 0)
    for file in files:
        name = str(file.relative_to(top))
        lacking = sorted(needs(file) & missing)
        if lacking or name in NOT_ALONE:
            result, why = "left out", NOT_ALONE.get(name) or f"needs {', '.join(lacking)}"
        else:
            folder = args.out / file.stem
            folder.mkdir()
            result, why = outcome(*launch(world, data, folder, file, name))
        counts[result] += 1
        print(f"| {name} | {result} | {why[:120].replace('|', '/')} |", flush=True)
    print(", ".join(f"{n} {result}" for result, n in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
