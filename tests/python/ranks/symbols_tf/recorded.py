# SPDX-License-Identifier: Apache-2.0
"""Values and kinds of errors of the original: it runs these cases too (record.sh --tensorflow-results,
under TensorFlow 2.12), with the results in horovod-0.28.1-tensorflow-results.json. Intended differences
(runtime/python/DECISIONS.md) are left out: bfloat16, bool and reducescatter with Min, Max and Product,
which it has not, batches of different sizes in SyncBatchNormalization, apply_gradients() of Keras 2.12's
optimizers, which it does not reduce."""

from core import OURS
from harness import N, R, hvd, np, symbol, tf
from horovod.tensorflow import mpi_ops

if not OURS:
    hvd.init()

FLOATS = (tf.float16, tf.float32, tf.float64)
INTS = (tf.uint8, tf.int8, tf.int32, tf.int64)
INVALID = "InvalidArgumentError"  # what is refused before it is sent
OPS = ("Sum", "Average", "Min", "Max", "Product")


def numbers(dtype, rank=R):
    """Small ones, of both signs where the type has them; float16 is exact for their sums."""
    values = [7, -3 if rank else 5, 1, 0, 2 + 9 * rank, -6]
    if dtype.is_floating:
        values = [v / 4 for v in values]
    elif dtype.is_unsigned:
        values = [abs(v) for v in values]
    return tf.constant(values, dtype)


def uneven(rows, columns=2, rank=R):
    return tf.constant(np.arange(rows * columns).reshape(rows, columns) / 8 + 10 * rank, tf.float32)


def slices(rank=R):
    values, indices = ([[1.0, 2.0]], [1]) if rank == 0 else ([[3.0, 5.0], [0.5, 0.25]], [1, 0])
    return tf.IndexedSlices(
        tf.constant(values), tf.constant(indices, tf.int64), tf.constant([3, 2], tf.int64)
    )


@symbol("allreduce")
def recorded_allreduce(t):
    for dtype in (*FLOATS, *INTS):
        for op in OPS:
            t.outcome(f"{dtype.name} {op}", hvd.allreduce, numbers(dtype), op=getattr(hvd, op))
    x = numbers(tf.float32)
    for pre, post in ((0.5, 1.0), (1.0, 3.0), (0.25, 4.0)):
        t.same(
            f"scaled {pre} {post}", hvd.allreduce(x, op=hvd.Sum, prescale_factor=pre, postscale_factor=post)
        )
        t.same(f"average {pre} {post}", hvd.allreduce(x, prescale_factor=pre, postscale_factor=post))
        i = numbers(tf.int32)
        t.outcome(
            f"int {pre} {post}", hvd.allreduce, i, op=hvd.Sum, prescale_factor=pre, postscale_factor=post
        )
    t.same("fp16", hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16))
    t.same("scalar", hvd.allreduce(tf.constant(1.5 + R)))


@symbol("allreduce")
def recorded_allreduce_of_indexed_slices(t):
    t.same("average", hvd.allreduce(slices()))
    t.same("sum", hvd.allreduce(slices(), op=hvd.Sum))
    for op in ("Min", "Max", "Product", "Adasum"):
        t.outcome(op, hvd.allreduce, slices(), op=getattr(hvd, op))
    t.outcome("prescale", hvd.allreduce, slices(), prescale_factor=0.5)


@symbol("allreduce")
def recorded_adasum(t):
    """Of the same, of orthogonal ones, and of ones in between; each tensor on its own."""
    vectors = {
        "same": [1.0, 2.0, -3.0],
        "orthogonal": [1.0, 0.0, 2.0] if R else [0.0, 3.0, 0.0],
        "opposite": [2.0, -1.0] if R else [-2.0, 1.0],
        "any": [1.0, 2.0, 3.0, 4.5] if R else [4.0, -1.0, 0.5, 2.0],
        "nothing": [0.0, 0.0] if R else [3.0, 4.0],
    }
    for name, vector in vectors.items():
        for dtype in (tf.float32, tf.float64):
            t.same(f"{name} {dtype.name}", hvd.allreduce(tf.constant(vector, dtype), op=hvd.Adasum))
    t.same("matrix", hvd.allreduce(tf.constant([[1.0 + R, 2.0], [3.0, -4.0 * R]]), op=hvd.Adasum))
    t.outcome("int32", hvd.allreduce, tf.constant([1, 2]), op=hvd.Adasum, instead=INVALID)


@symbol("grouped_allreduce", "grouped_allgather", "grouped_reducescatter")
def recorded_groups(t):
    xs = [numbers(tf.float32), uneven(2), numbers(tf.float32)[:1]]
    t.same("allreduce", hvd.grouped_allreduce(xs))
    t.same("allreduce sum", hvd.grouped_allreduce(xs, op=hvd.Sum, prescale_factor=0.5))
    t.same("allgather", hvd.grouped_allgather([uneven(1 + R), uneven(2 - R)]))
    t.same("reducescatter", hvd.grouped_reducescatter([uneven(5), uneven(2)], op=hvd.Sum))
    t.outcome("of nothing", hvd.grouped_allreduce, [])


@symbol("allgather", "alltoall", "broadcast", "broadcast_", "reducescatter")
def recorded_moves(t):
    t.same("allgather", hvd.allgather(uneven(1 + R)))
    t.same("allgather none", hvd.allgather(uneven(2 * R)))
    t.outcome("allgather scalar", hvd.allgather, tf.constant(1.0), instead=INVALID)
    t.same("alltoall", hvd.alltoall(uneven(4)))
    t.same("alltoall splits", hvd.alltoall(uneven(3), splits=[1, 2] if R else [3, 0]))
    t.same("alltoall to the first", hvd.alltoall(uneven(2), splits=[2, 0]))
    t.outcome("alltoall 3 rows", hvd.alltoall, uneven(3))
    t.outcome("alltoall too many", hvd.alltoall, uneven(3), splits=[2, 2])
    for root in range(N):
        t.same(f"broadcast {root}", hvd.broadcast(uneven(2), root))
    v = tf.Variable(uneven(2))
    t.same("broadcast_", hvd.broadcast_([v], 1))
    t.same("of it", v)
    for rows in (4, 5, 1):
        for op in ("Sum", "Average"):
            t.same(f"reducescatter {rows} {op}", hvd.reducescatter(uneven(rows), op=getattr(hvd, op)))
    t.outcome("reducescatter scalar", hvd.reducescatter, tf.constant(1.0))


@symbol("broadcast_object", "allgather_object", "broadcast_variables")
def recorded_objects(t):
    mine = {"rank": R, "list": [1, 2.5, None], "tuple": (R, "x"), "set": {3, R}}
    for root in range(N):
        t.same(f"broadcast {root}", hvd.broadcast_object(mine, root))
    t.same("allgather", hvd.allgather_object([R, "é" * (3 + R)]))
    variables = [tf.Variable(uneven(2)), tf.Variable(float(R)), tf.Variable(numbers(tf.int32))]
    hvd.broadcast_variables(variables, root_rank=1)
    t.same("variables", variables)


def gradients_of(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
        loss = tf.reduce_sum(y * tf.cast(tf.reshape(tf.range(tf.size(y)), tf.shape(y)) + 1 + R, y.dtype))
    return tape.gradient(loss, x)


@symbol("allreduce", "allgather", "alltoall", "broadcast", "reducescatter")
def recorded_gradients(t):
    for name in ("Sum", "Average"):
        op = getattr(hvd, name)
        t.same(f"allreduce {name}", gradients_of(lambda x, op=op: hvd.allreduce(x, op=op), uneven(2)))
        t.same(
            f"reducescatter {name}", gradients_of(lambda x, op=op: hvd.reducescatter(x, op=op), uneven(5))
        )
    scaled = gradients_of(
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0), uneven(2)
    )
    t.same("allreduce scaled", scaled)
    t.same("allgather", gradients_of(hvd.allgather, uneven(1 + R)))
    for root in range(N):
        t.same(f"broadcast {root}", gradients_of(lambda x, root=root: hvd.broadcast(x, root), uneven(2)))
    t.same(
        "alltoall", gradients_of(lambda x: hvd.alltoall(x, splits=[1, 2] if R else [3, 0])[0], uneven(3))
    )


def tape_gradients(wrap=hvd.DistributedGradientTape, **options):
    """A dense gradient, a sparse one and none."""
    w, table, alone = tf.Variable(uneven(2)), tf.Variable(tf.ones([3, 2])), tf.Variable(1.0)
    with tf.GradientTape() as tape:
        rows = tf.gather(table, [1, 1] if R == 0 else [2, 1])
        loss = tf.reduce_sum(tf.square(w) * (1.0 + R)) + tf.reduce_sum(rows * uneven(2))
    return wrap(tape, **options).gradient(loss, [w, table, alone])


@symbol("DistributedGradientTape")
def recorded_tape(t):
    t.same("average", tape_gradients())
    t.same("sum", tape_gradients(op=hvd.Sum))
    t.same("sparse as dense", tape_gradients(sparse_as_dense=True))
    t.same("fp16", tape_gradients(compression=hvd.Compression.fp16))
    t.same("predivide", tape_gradients(gradient_predivide_factor=4.0, sparse_as_dense=True))
    t.same("groups", tape_gradients(num_groups=1, sparse_as_dense=True))
    t.same("adasum", tape_gradients(op=hvd.Adasum, sparse_as_dense=True))
    t.outcome("predivide of a sum", tape_gradients, op=hvd.Sum, gradient_predivide_factor=4.0)


@symbol("SyncBatchNormalization", "horovod.tensorflow.sync_batch_norm.SyncBatchNormalization")
def recorded_sync_batch_normalization(t):
    layer = hvd.SyncBatchNormalization(axis=-1, momentum=0.5)
    x = uneven(4)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
        loss = tf.reduce_sum(tf.square(y) * (1.0 + tf.range(4.0)[:, tf.newaxis]))
    t.same("output", y)
    t.same("gradients", tape.gradient(loss, [x, *layer.trainable_variables]))
    t.same("moving", [tf.convert_to_tensor(layer.moving_mean), tf.convert_to_tensor(layer.moving_variance)])
    t.same("inference", layer(x, training=False))


@symbol("horovod.tensorflow.keras.DistributedOptimizer")
def recorded_optimizer(t):
    import horovod.tensorflow.keras as hvk

    def train(gradients, **options):
        v = tf.Variable([1.0, 2.0]) if not hasattr(tf.keras, "Variable") else tf.keras.Variable([1.0, 2.0])
        optimizer = hvk.DistributedOptimizer(tf.keras.optimizers.SGD(0.5), **options)
        seen = []
        for g in gradients:
            if hasattr(optimizer, "minimize"):  # not in Keras 3
                optimizer.minimize(lambda g=g: tf.reduce_sum(v * tf.constant(g)), [v])
            else:
                optimizer.apply_gradients([(tf.constant(g), v)])
            seen.append(tf.convert_to_tensor(v))
        return seen

    four = [[1.0 + R, 2.0], [0.5, -1.0 * R], [3.0 * R, 1.0], [0.25, 0.25]]
    t.same("average", train(four))
    t.same("sum", train(four, op=hvk.Sum))
    t.same("predivide", train(four, gradient_predivide_factor=4.0))
    t.same("two passes", train(four, backward_passes_per_step=2))
    t.same(
        "two passes, averaged", train(four, backward_passes_per_step=2, average_aggregated_gradients=True)
    )


@symbol("join")
def recorded_join(t):
    if R == 1:
        t.same("one alone", hvd.allreduce(tf.constant([4.0, 6.0]), op=hvd.Sum, name="alone"))
        t.same("and averaged", hvd.allreduce(tf.constant([4.0, 6.0]), name="alone again"))
    t.same("last", tf.cast(hvd.join(), tf.int32))
    t.same("size", mpi_ops.size_op())
