# SPDX-License-Identifier: Apache-2.0
"""One process is one replica: hvd.init() gives it one GPU, and strategies of several are refused.

A process that sees all GPUs of its host would allocate memory on each, and a MirroredStrategy would train
on all. Nothing is chosen if the script has chosen (tf.config.set_visible_devices, CUDA_VISIBLE_DEVICES with
one GPU), nor with HVD_PIN_GPU=0. Scripts that choose after hvd.init(), as Horovod's examples do, find all
physical devices listed and may choose again.
"""

import contextlib
import logging
import os

import tensorflow as tf

from _hvd import basics

_log = logging.getLogger("horovod.tensorflow")


def pin_gpu():
    """Makes gpus[local_rank] the only visible GPU, if there are several and none was chosen."""
    if os.environ.get("HVD_PIN_GPU", "").strip().lower() in ("0", "false", "no", "off"):
        return
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) < 2 or len(tf.config.get_visible_devices("GPU")) != len(gpus):
        return
    local_rank = basics.local_rank()
    try:
        tf.config.set_visible_devices(gpus[local_rank % len(gpus)], "GPU")
    except RuntimeError:  # TensorFlow has started its devices
        _log.warning(
            "hvd.init() leaves all %d GPUs to this process, because TensorFlow has started them already; "
            "call hvd.init() before the first tensor",
            len(gpus),
        )
        return
    shared = f", which {basics.local_size()} ranks share" if basics.local_size() > len(gpus) else ""
    _log.warning(
        "local rank %d uses GPU %d of %d%s (HVD_PIN_GPU=0 leaves the choice to the script)",
        local_rank,
        local_rank % len(gpus),
        len(gpus),
        shared,
    )


def on_device(device):
    """tf.device(), and TensorFlow's choice for "", which eagerly would be the CPU's in tf.device()."""
    return tf.device(device) if device else contextlib.nullcontext()


def refuse_replicas(kind):
    """RuntimeError under a strategy of several replicas: each would call, and the ranks would not agree."""
    if not tf.distribute.has_strategy():
        return
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas > 1:
        raise RuntimeError(
            f"hvd.{kind}() under a tf.distribute strategy of {replicas} replicas: each process of this job "
            "is one replica; take the strategy out, or make it for one device after hvd.init(): "
            "tf.distribute.MirroredStrategy(['GPU:0'])"
        )


basics.at_init(pin_gpu)
