# SPDX-License-Identifier: Apache-2.0
"""Keras imported by itself, as Horovod 0.18's keras_mnist.py does."""

import horovod.keras as hvd
import keras
import tensorflow as tf
from digits import batches
from keras import backend as K
from keras.layers import Dense
from keras.models import Sequential

hvd.init()
config = tf.ConfigProto()
config.gpu_options.allow_growth = True
config.gpu_options.visible_device_list = str(hvd.local_rank())
K.set_session(tf.Session(config=config))

x_train, y_train = next(batches(hvd.rank(), 640))
model = Sequential()
model.add(Dense(32, activation="relu", input_shape=(64,)))
model.add(Dense(10, activation="softmax"))
opt = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05 * hvd.size(), momentum=0.9))
model.compile(loss=keras.losses.sparse_categorical_crossentropy, optimizer=opt)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
losses = model.fit(x_train, y_train, batch_size=32, callbacks=callbacks, epochs=4, verbose=0).history[
    "loss"
]
held = sum(float(w.sum()) for w in model.get_weights())
print(f"rank {hvd.rank()}: loss {losses[0]:.4f} to {losses[-1]:.4f}, weights {held!r}")
