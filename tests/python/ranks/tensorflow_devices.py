# SPDX-License-Identifier: Apache-2.0
"""One GPU for each process, and one replica. The first script of a start: it makes two CPUs.

Where there is no GPU, TensorFlow's lists of devices are ours; that of strategies is tested on CPUs.
"""

import logging
import os
from unittest import mock

import horovod.tensorflow as hvd
import tensorflow as tf
from checks import check, expect_error, main

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("horovod.tensorflow").addHandler(handler)


class Gpus:
    """TensorFlow with this many GPUs; visible: those that the program chose."""

    def __init__(self, count, visible=None, started=False):
        self.all = [f"gpu{i}" for i in range(count)]
        self.visible = self.all if visible is None else visible
        self.started = started
        self.chosen = []

    def choose(self, devices, device_type=None):
        if self.started:
            raise RuntimeError("Visible devices cannot be modified after being initialized")
        assert device_type == "GPU"
        self.chosen.append(devices)

    def init(self):
        """hvd.init() there; returns what it has chosen."""
        said.clear()
        with mock.patch.multiple(
            tf.config,
            list_physical_devices=lambda kind=None: self.all,
            get_visible_devices=lambda kind=None: self.visible,
            set_visible_devices=self.choose,
        ):
            hvd.init()
        return self.chosen


first, first_said = Gpus(4).init(), list(said)
R, N = hvd.rank(), hvd.size()


def again(gpus, **environment):
    hvd.shutdown()
    with mock.patch.dict(os.environ, environment):
        return gpus.init()


@check
def init_chooses_each_ranks_gpu_and_logs_it_once():
    assert first == [f"gpu{hvd.local_rank()}"], first
    words = f"local rank {R} uses GPU {R} of 4 (HVD_PIN_GPU=0 leaves the choice to the script)"
    assert first_said == [words], first_said
    assert Gpus(4).init() == [] and said == []  # there is a world


@check
def nothing_is_chosen_if_a_gpu_was_chosen_before():
    assert again(Gpus(4, visible=["gpu3"])) == []
    assert again(Gpus(4, visible=[])) == []
    assert again(Gpus(1)) == [] and again(Gpus(0)) == []
    for no in ("0", "false", "off"):
        assert again(Gpus(4), HVD_PIN_GPU=no) == []
    assert said == []
    assert again(Gpus(4), HVD_PIN_GPU="1") == [f"gpu{R}"]


@check
def ranks_share_where_there_are_fewer_gpus():
    if N > 2:
        assert again(Gpus(2)) == [f"gpu{R % 2}"]
        assert f"which {N} ranks share" in said[0]


@check
def started_devices_are_left_with_a_warning():
    assert again(Gpus(4, started=True)) == []
    assert len(said) == 1 and "call hvd.init() before the first tensor" in said[0], said


@check
def a_wrong_value_is_an_error():
    words = ["HVD_PIN_GPU", "maybe"]
    try:
        expect_error(ValueError, words, again, Gpus(4), HVD_PIN_GPU="maybe")
    finally:
        hvd.init()


@check
def one_replica_is_as_none():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        assert float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum)) == N
    out = strategy.run(lambda: hvd.allreduce(tf.constant(2.0)))
    assert float(strategy.reduce("SUM", out, axis=None)) == 2.0


@check
def more_replicas_are_refused_with_advice():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    words = ["hvd.allreduce()", "strategy of 2 replicas", "one replica", "MirroredStrategy(['GPU:0'])"]
    with strategy.scope():
        expect_error(RuntimeError, words, hvd.allreduce, tf.constant(1.0))
    expect_error(RuntimeError, words, strategy.run, lambda: hvd.allreduce(tf.constant(1.0)))

    @tf.function
    def step():
        return strategy.run(lambda: hvd.allreduce(tf.constant(1.0)))

    expect_error(RuntimeError, words, step)
    assert float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum)) == N


main(R)
