# SPDX-License-Identifier: Apache-2.0
"""Which kernels TensorFlow has for GPUs, and what they do, with and without the fakes of CUDA.

TensorFlow of processors: tests/fakes/tensorflow gives it a device "GPU" of the fake driver.
"""

import functools
import json
import unittest

from job import BUILD, JobTest, each_tf, horovodrun, only_tf, python

FAKES = BUILD / "plain/fakes"
SCRIPT_ON_GPU, SCRIPT_OF_A_LOSS = "tensorflow_gpu.py", "tensorflow_gpu_lost.py"


def gpus(cuda):
    """Three GPUs of the fake driver for this version of CUDA, as ranks/fake_gpu.py wants them."""
    fakes = {"FAKES": str(FAKES), "HVD_FAKE_GPUS": "3", "HVD_FAKE_CUDA": cuda}
    return {**fakes, "CUDA_VISIBLE_DEVICES": "0,1,2"}


# Each of the cases in a child of a process that has imported TensorFlow, which takes 3 s, and nothing else: no thread
# is there yet, no device, and nothing of ours that asks for GPUs.
SCRIPT = """
import ctypes, json, logging, os, sys
logging.basicConfig(format="LOG %(message)s", stream=sys.stdout)
import tensorflow as tf
from tensorflow.python.framework import kernels
import horovod.tensorflow as hvd

def registered(op):
    return {k.device_type: list(k.host_memory_arg) for k in kernels.get_registered_kernels_for_op(op).kernel}

def alone(libraries, environment):
    os.environ.update(environment)
    hvd.init()
    before = registered("HvdAllreduce")
    loaded = "libhvd_cuda.so" in open("/proc/self/maps").read()
    tf.config.list_physical_devices()
    for name in libraries:  # from here on they are what the runtime finds
        ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
    if "SEEN" in os.environ:
        tf.config.list_physical_devices = lambda kind=None: ["a GPU"]
    total = hvd.allreduce(tf.constant([2.0]), op=hvd.Sum, name="x")
    opened = "libhvd_cuda.so" in open("/proc/self/maps").read()
    print("TOLD", json.dumps({
        "sum": float(total[0]), "before": before, "loaded": loaded, "opened": opened,
        "cuda_built": hvd.cuda_built(),
        "after": {op: registered(op) for op in ("HvdAllreduce", "HvdAlltoall", "HvdJoin", "HvdSize")},
    }))

assert os.listdir("/proc/self/task") == [str(os.getpid())], "a thread that a child would lack"
for name, case in json.loads(sys.argv[1]).items():
    print("CASE", name, flush=True)
    child = os.fork()
    if child == 0:
        alone(*case)
        sys.exit()
    _, status = os.waitpid(child, 0)
    assert status == 0, (name, status)
"""
LIBRARIES = [str(FAKES / "libcuda.so.1"), str(FAKES / "libnccl.so.2")]
CASES = {  # name: libraries that are there, more of the environment
    "can travel": (LIBRARIES, {"SEEN": "1", "CUDA_VISIBLE_DEVICES": "0"}),
    "no driver": ([], {"SEEN": "1"}),
    "off": ([], {"SEEN": "1", "HVD_GPU": "off"}),
    "TensorFlow sees none": (LIBRARIES, {"CUDA_VISIBLE_DEVICES": "0"}),
}


@functools.lru_cache(maxsize=None)
def run_cases(interpreter):
    fakes = {"FAKES": str(FAKES), "HVD_FAKE_GPUS": "1"}
    return python(SCRIPT, json.dumps(CASES), python=interpreter, timeout=600, **fakes)


@each_tf
class Gpu(unittest.TestCase):
    def told(self, case):
        ended = run_cases(self.python)
        parts = dict(part.split("\n", 1) for part in f"\n{ended.out}".split("\nCASE ")[1:])
        self.assertIn(case, parts, ended)
        lines = parts[case].splitlines()
        told = [line.removeprefix("TOLD ") for line in lines if line.startswith("TOLD ")]
        self.assertEqual(len(told), 1, ended)
        return json.loads(told[0]), [line for line in lines if line.startswith("LOG ")]

    def test_kernels_come_where_tensors_can_travel(self):
        told, log = self.told("can travel")
        self.assertEqual((told["sum"], told["before"], told["loaded"]), (2.0, {"CPU": []}, False))
        self.assertEqual(told["after"]["HvdAllreduce"], {"CPU": [], "GPU": []})
        self.assertEqual(told["after"]["HvdAlltoall"], {"CPU": [], "GPU": ["splits", "received_splits"]})
        self.assertEqual(told["after"]["HvdJoin"], {"CPU": [], "GPU": ["output"]})
        self.assertEqual(told["after"]["HvdSize"], {"CPU": []})
        self.assertEqual((told["cuda_built"], log), (True, []))

    def test_none_are_registered_otherwise_and_the_reason_is_logged(self):
        told, log = self.told("no driver")
        self.assertEqual((told["sum"], told["after"]["HvdAllreduce"]), (2.0, {"CPU": []}))
        self.assertEqual(len(log), 1, log)
        self.assertRegex(log[0], r"tensors on GPUs are copied via host memory: no NVIDIA driver here \(")
        told, log = self.told("off")
        self.assertEqual((told["after"]["HvdAllreduce"], log), ({"CPU": []}, []))

    def test_nothing_is_opened_where_tensorflow_sees_no_gpu(self):
        told, log = self.told("TensorFlow sees none")
        self.assertEqual((told["after"]["HvdAllreduce"], log), ({"CPU": []}, []))
        self.assertFalse(told["opened"])


@each_tf
class Operations(JobTest):
    """On one event of the whole context, and, as older drivers need it, by waiting for the device.

    Our kernels are one file for all TensorFlows, so each of these has one driver; the other one: test_full.py.
    """

    @only_tf("tf")
    def test_2(self):
        scripts = (SCRIPT_ON_GPU, SCRIPT_OF_A_LOSS)
        ended = self.run_checks(
            2, scripts, timeout=600, label="CUDA 12.5", end=137, outlived=True, **gpus("12050")
        )
        self.assertIn("RANK 0 WAS TOLD", ended.out)

    @only_tf("tf215")
    def test_2_with_an_older_driver(self):
        self.run_checks(2, SCRIPT_ON_GPU, timeout=600, label="CUDA 12.4", **gpus("12040"))

    @only_tf("tf")  # the runtime chooses the thread that waits, for every TensorFlow alike
    def test_a_lost_rank_is_reported_by_an_older_driver_2(self):
        ended = horovodrun(
            2, SCRIPT_OF_A_LOSS, python=self.python, timeout=300, outlived=True, **gpus("12040")
        )
        self.assertEqual(ended.code, 137, ended)
        self.assertIn("RANK 0 WAS TOLD", ended.out)
