# SPDX-License-Identifier: Apache-2.0
"""Which kernels TensorFlow has for GPUs, and what they do, with and without the fakes of CUDA.

TensorFlow of processors: tests/fakes/tensorflow gives it a device "GPU" of the fake driver.
"""

import json
import unittest

from job import BUILD, JobTest, each_tf, horovodrun, only_tf, python

FAKES = BUILD / "plain/fakes"
SCRIPT_ON_GPU = "tensorflow_gpu.py"


def gpus(cuda):
    """Three GPUs of the fake driver for this version of CUDA, as ranks/fake_gpu.py wants them."""
    fakes = {"FAKES": str(FAKES), "HVD_FAKE_GPUS": "3", "HVD_FAKE_CUDA": cuda}
    return {**fakes, "CUDA_VISIBLE_DEVICES": "0,1,2"}


SCRIPT = """
import ctypes, json, logging, os, sys
logging.basicConfig(format="LOG %(message)s", stream=sys.stdout)
import tensorflow as tf
from tensorflow.python.framework import kernels
import horovod.tensorflow as hvd

def registered(op):
    return {k.device_type: list(k.host_memory_arg) for k in kernels.get_registered_kernels_for_op(op).kernel}

hvd.init()
before = registered("HvdAllreduce")
loaded = "libhvd_cuda.so" in open("/proc/self/maps").read()
tf.config.list_physical_devices()
for name in sys.argv[1:]:  # from here on they are what the runtime finds
    ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
if "SEEN" in os.environ:
    tf.config.list_physical_devices = lambda kind=None: ["a GPU"]
total = hvd.allreduce(tf.constant([2.0]), op=hvd.Sum, name="x")
opened = "libhvd_cuda.so" in open("/proc/self/maps").read()
print("TOLD", json.dumps({
    "sum": float(total[0]), "before": before, "loaded": loaded, "opened": opened, "cuda_built": hvd.cuda_built(),
    "after": {op: registered(op) for op in ("HvdAllreduce", "HvdAlltoall", "HvdJoin", "HvdSize")},
}))
"""


@each_tf
class Gpu(unittest.TestCase):
    def told(self, *libraries, **extra):
        fakes = [str(FAKES / name) for name in libraries]
        ended = python(SCRIPT, *fakes, python=self.python, timeout=120, HVD_FAKE_GPUS="1", **extra)
        lines = ended.out.splitlines()
        told = [line.removeprefix("TOLD ") for line in lines if line.startswith("TOLD ")]
        self.assertEqual(len(told), 1, ended)
        return json.loads(told[0]), [line for line in lines if line.startswith("LOG ")]

    def test_kernels_come_where_tensors_can_travel(self):
        told, log = self.told("libcuda.so.1", "libnccl.so.2", SEEN="1", CUDA_VISIBLE_DEVICES="0")
        self.assertEqual((told["sum"], told["before"], told["loaded"]), (2.0, {"CPU": []}, False))
        self.assertEqual(told["after"]["HvdAllreduce"], {"CPU": [], "GPU": []})
        self.assertEqual(told["after"]["HvdAlltoall"], {"CPU": [], "GPU": ["splits", "received_splits"]})
        self.assertEqual(told["after"]["HvdJoin"], {"CPU": [], "GPU": ["output"]})
        self.assertEqual(told["after"]["HvdSize"], {"CPU": []})
        self.assertEqual((told["cuda_built"], log), (True, []))

    def test_none_come_where_they_cannot_and_the_reason_is_told(self):
        told, log = self.told(SEEN="1")
        self.assertEqual((told["sum"], told["after"]["HvdAllreduce"]), (2.0, {"CPU": []}))
        self.assertEqual(len(log), 1, log)
        self.assertRegex(log[0], r"tensors on GPUs travel by way of host memory: no NVIDIA driver here \(")
        told, log = self.told(SEEN="1", HVD_GPU="off")
        self.assertEqual((told["after"]["HvdAllreduce"], log), ({"CPU": []}, []))

    def test_nothing_is_opened_where_tensorflow_sees_no_gpu(self):
        told, log = self.told("libcuda.so.1", "libnccl.so.2", CUDA_VISIBLE_DEVICES="0")
        self.assertEqual((told["after"]["HvdAllreduce"], log), ({"CPU": []}, []))
        self.assertFalse(told["opened"])


@each_tf
class Operations(JobTest):
    """On one event of the whole context, and, as older drivers need it, by waiting for the device."""

    def test_2(self):
        self.run_checks(2, SCRIPT_ON_GPU, timeout=240, label="CUDA 12.5", **gpus("12050"))

    @only_tf("tf")
    def test_2_with_an_older_driver(self):
        self.run_checks(2, SCRIPT_ON_GPU, timeout=240, label="CUDA 12.4", **gpus("12040"))

    @only_tf("tf")  # who waits in which thread is the runtime's, and so for all
    def test_a_lost_rank_is_told_3(self):
        for cuda in ("12050", "12040"):
            ended = horovodrun(3, "tensorflow_gpu_lost.py", python=self.python, **gpus(cuda))
            self.assertEqual(ended.code, 137, ended)
            for rank in (0, 1):
                self.assertIn(f"RANK {rank} WAS TOLD", ended.out)
