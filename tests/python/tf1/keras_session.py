# SPDX-License-Identifier: Apache-2.0
"""tf.keras in a session that the script configures, as Horovod 0.18's tensorflow_keras_mnist.py does."""

import horovod.tensorflow.keras as hvd
import tensorflow as tf
from digits import batches
from tensorflow.keras import backend as K
from tensorflow.keras.layers import Dense, Dropout
from tensorflow.keras.models import Sequential

# Horovod: initialize Horovod.
hvd.init()

# Horovod: pin GPU to be used to process local rank (one GPU per process)
config = tf.ConfigProto()
config.gpu_options.allow_growth = True
config.gpu_options.visible_device_list = str(hvd.local_rank())
tf.keras.backend.set_session(tf.Session(config=config))

x_train, y_train = next(batches(hvd.rank(), 640))
y_train = tf.keras.utils.to_categorical(y_train, 10)
model = Sequential(
    [Dense(32, activation="relu", input_shape=(64,)), Dropout(0.1), Dense(10, activation="softmax")]
)

# Horovod: adjust learning rate based on number of GPUs.
opt = tf.keras.optimizers.Adadelta(0.5 * hvd.size())
opt = hvd.DistributedOptimizer(opt)
model.compile(loss=tf.keras.losses.categorical_crossentropy, optimizer=opt, metrics=["accuracy"])
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
if hvd.rank() == 0:
    callbacks.append(tf.keras.callbacks.ModelCheckpoint("checkpoint-{epoch}.h5"))
fitted = model.fit(x_train, y_train, batch_size=32, callbacks=callbacks, epochs=4, verbose=0)
losses = fitted.history["loss"]
held = sum(float(w.sum()) for w in K.get_session().run(model.trainable_weights))
print(f"rank {hvd.rank()}: loss {losses[0]:.4f} to {losses[-1]:.4f}, weights {held!r}")
