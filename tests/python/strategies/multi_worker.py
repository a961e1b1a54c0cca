# SPDX-License-Identifier: Apache-2.0
"""A script for MultiWorkerMirroredStrategy."""

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = np.random.default_rng(1).random((64, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="zeros", input_shape=(4,))])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
losses = model.fit(x, y, batch_size=16, epochs=3, validation_data=(x, y), verbose=0).history["val_loss"]
print(f"replicas {strategy.num_replicas_in_sync}, val_loss {losses[-1]:.6f}")
