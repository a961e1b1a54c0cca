# SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow as programs see it: without eager execution, objects, perseus."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from checks import check, main

hvd.init()
R, N = hvd.rank(), hvd.size()


@check
def tensorflow_without_eager_execution_works():
    import subprocess
    import sys

    code = """if 1:
        import tensorflow.compat.v1 as tf
        import horovod.tensorflow as hvd
        tf.disable_eager_execution()
        hvd.init()
        y = hvd.allreduce(tf.constant([2.0]), op=hvd.Sum)
        with tf.Session() as session:
            print("MODE", hvd.completion_mode(), session.run(y))
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith("HOROVOD_")}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        env.pop(name, None)
    if R == 0 and os.environ["WANT_MODE"] == "asynchronous":  # else there is no self-test
        out = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=240
        )
        assert f"MODE {os.environ['WANT_MODE']} [2.]" in out.stdout, out


@check
def a_forked_child_is_no_rank():
    child = os.fork()
    if child == 0:
        os._exit(0 if not hvd.is_initialized() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum)) == N


@check
def a_pipeline_of_tf_data_feeds_collectives():
    def rows():
        for i in range(20):
            yield np.full(3, i, np.float32)

    data = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([3], tf.float32))
    total = 0.0
    for batch in data.map(lambda x: x + 1, num_parallel_calls=2).batch(4).prefetch(2):
        total += float(tf.reduce_sum(hvd.allreduce(batch, op=hvd.Sum)))
    assert total == 3 * 210 * N, total


main(R)
