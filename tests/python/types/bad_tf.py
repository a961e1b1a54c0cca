# SPDX-License-Identifier: Apache-2.0
"""Mistakes with TensorFlow and Keras that mypy must find, each with its code. Never executed."""

import horovod.keras
import horovod.tensorflow as hvd
import tensorflow as tf
from horovod.keras.callbacks import LearningRateWarmupCallback

x = tf.ones([2])
hvd.allreduce(x, ops=hvd.Sum)  # [call-overload]
hvd.broadcast(x)  # [call-arg]
hvd.broadcast(x, root_rank="0")  # [arg-type]
hvd.allgather(x, process_set=[0, 1])  # [arg-type]
hvd.DistributedGradientTape(x)  # [arg-type]
hvd.rank() + "1"  # [operator]
hvd.allreduced(x)  # [attr-defined]
LearningRateWarmupCallback(0.1, warmup_epochs="five")  # [arg-type]
horovod.keras.load_model()  # [call-arg]
horovod.keras.broadcast(x, root="0")  # [call-arg]
