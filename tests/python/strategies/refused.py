# SPDX-License-Identifier: Apache-2.0
"""What TensorFlow alone answers badly or late. Its cluster is in this process, at the two ports of argv."""

import sys

import numpy as np
import tensorflow as tf

try:
    tf.distribute.ParameterServerStrategy()
except RuntimeError as e:
    print(f"without TF_CONFIG: {e}")
cluster = tf.train.ClusterSpec(
    {role: [f"localhost:{p}"] for role, p in zip(("worker", "ps"), sys.argv[1:])}
)
servers = [tf.distribute.Server(cluster, job_name=role, task_index=0) for role in cluster.jobs]
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(loss="mse")
try:
    model.fit(np.zeros((8, 4), "float32"), np.zeros((8, 1), "float32"), steps_per_epoch=1, verbose=0)
except RuntimeError as e:
    print(f"with Keras 3: {e}", flush=True)
