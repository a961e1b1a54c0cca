# SPDX-License-Identifier: Apache-2.0
"""A script for ParameterServerStrategy as it is printed: without roles, a resolver and numbers of steps."""

import atexit
import threading

import numpy as np

# before TensorFlow is imported: the last of all exit functions
atexit.register(lambda: print("at exit:", [t.name for t in threading.enumerate() if "Worker" in t.name]))

import tensorflow as tf  # noqa: E402

strategy = tf.distribute.experimental.ParameterServerStrategy()
x = np.random.default_rng(1).random((80, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="zeros", input_shape=(4,))])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")


def fit(epochs=1, **validation):
    return model.fit(x, y, batch_size=16, epochs=epochs, verbose=0, **validation)


trained = fit(4, validation_data=(x[:40], y[:40]))
print(f"{trained.params['steps']} steps, val_loss {trained.history['val_loss'][-1]:.4f}")
print(f"split: {fit(validation_split=0.4).params['steps']} steps")
fit(validation_data=tf.data.Dataset.from_tensor_slices((x, y)).batch(16))
print(f"evaluated: {model.evaluate(x, y, verbose=0):.4f}, {type(model).__module__.partition('.')[0]}")
