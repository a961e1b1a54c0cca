# SPDX-License-Identifier: Apache-2.0
"""What a typed training script does with TensorFlow and Keras: `mypy --strict` has nothing to say. Never
executed."""

from typing import Any, List, Optional

import horovod.keras
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import tensorflow as tf
from horovod.tensorflow.elastic import TensorFlowKerasState, run
from horovod.tensorflow.keras.callbacks import BroadcastGlobalVariablesCallback, MetricAverageCallback


def collectives(x: tf.Tensor, slices: tf.IndexedSlices) -> tf.Tensor:
    hvd.init()
    evens = hvd.add_process_set([0, 2])
    size: Optional[int] = evens.size()
    y = hvd.allreduce(x, name="x", op=hvd.Sum, compression=hvd.Compression.fp16, process_set=evens)
    sparse: tf.IndexedSlices = hvd.allreduce(slices)
    rows, received = hvd.alltoall(x, splits=[1, 2])
    z: tf.Tensor = hvd.alltoall(x)
    parts: List[tf.Tensor] = hvd.grouped_allgather([x, rows, received, z])
    print(sparse, size, hvd.broadcast_object(3) + 1)
    return y + hvd.reducescatter(parts[0], op=hvd.Max) + hvd.broadcast(x, root_rank=0)


def train(w: tf.Variable) -> None:
    with tf.GradientTape() as plain:
        loss = tf.reduce_sum(w)
    tape = hvd.DistributedGradientTape(plain, groups=2)
    tape.register_local_source(w)
    print(tape.gradient(loss, [w]))
    hvd.broadcast_variables([w], root_rank=0)


def fit(model: Any) -> None:
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.Adam(0.1), backward_passes_per_step=2)
    print(optimizer.learning_rate, horovod.keras.size(), hvd_keras.allreduce(1.0, op=hvd_keras.Sum))
    callbacks: List[tf.keras.callbacks.Callback] = [
        BroadcastGlobalVariablesCallback(0),
        MetricAverageCallback(),
    ]
    model.fit(callbacks=callbacks)
    state = TensorFlowKerasState(model, epoch=0)

    @run
    def work(state: TensorFlowKerasState) -> None:
        state.epoch += 1
        state.commit()

    work(state)
