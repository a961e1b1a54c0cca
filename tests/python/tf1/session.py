# SPDX-License-Identifier: Apache-2.0
"""A plain tf.Session: clipped gradients, a broadcast by hand, a Saver; and each optimizer averages once."""

import horovod.tensorflow as hvd
import tensorflow.compat.v1 as tf
from digits import batches
from network import logits_of
from tensorflow.python.framework import ops

assert ops.get_default_graph() is tf.get_default_graph()
hvd.init()
config = tf.ConfigProto(allow_soft_placement=True)
config.gpu_options.visible_device_list = str(hvd.local_rank())

x = tf.placeholder(tf.float32, [None, 64])
y = tf.placeholder(tf.int32, [None])
loss = tf.losses.sparse_softmax_cross_entropy(y, logits_of(x))
learning_rate = tf.train.exponential_decay(
    0.01 * hvd.size(), tf.train.get_or_create_global_step(), 100, 0.96
)
optimizer = hvd.DistributedOptimizer(tf.train.AdamOptimizer(learning_rate))
gradients, variables = zip(*optimizer.compute_gradients(loss))
gradients, norm = tf.clip_by_global_norm(gradients, 5.0)
train = optimizer.apply_gradients(zip(gradients, variables), global_step=tf.train.get_global_step())
bcast = hvd.broadcast_global_variables(0)
saver = tf.train.Saver()

with tf.Session(config=config) as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(bcast)
    data, losses = batches(hvd.rank(), 32), []
    for _ in range(40):
        images, labels = next(data)
        _, value = sess.run([train, loss], feed_dict={x: images, y: labels})
        losses.append(value)
    if hvd.rank() == 0:
        saver.save(sess, "model/model.ckpt", global_step=tf.train.get_global_step())
    held = sum(float(v.sum()) for v in sess.run(tf.trainable_variables()))
print(f"rank {hvd.rank()}: loss {losses[0]:.4f} to {losses[-1]:.4f}, weights {held!r}")

# a gradient of rank + 1 moves the variable by the mean of all ranks, 1.5, and not by less or by more
tf.reset_default_graph()
moved = {}
for make in (tf.train.GradientDescentOptimizer, lambda rate: tf.train.MomentumOptimizer(rate, 0.0)):
    v = tf.Variable(10.0)
    opt = hvd.DistributedOptimizer(make(1.0))
    pairs = opt.compute_gradients((hvd.rank() + 1.0) * v, var_list=[v])
    moved[v] = opt.apply_gradients([(tf.clip_by_value(g, -9.0, 9.0), w) for g, w in pairs])
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(list(moved.values()))
    print(f"rank {hvd.rank()}: 10 became", *sess.run(list(moved)))
