# SPDX-License-Identifier: Apache-2.0
"""What gathers, spreads and exchanges: allgather, broadcast, alltoall, join."""

from harness import N, R, hvd, np, session_run, symbol, tf, v1

DTYPES = (tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64)


def rows(rank):
    """As many rows as the rank plus one, of its numbers."""
    return np.full([rank + 1, 2], rank + 1)


@symbol("allgather")
def allgather(t):
    want = np.concatenate([rows(r) for r in range(N)])
    for dtype in DTYPES:
        t.equal(hvd.allgather(tf.cast(rows(R), dtype)), want, dtype=dtype)
    t.equal(tf.cast(hvd.allgather(tf.constant([R == 1])), tf.int32), [0, 1])
    t.equal(hvd.allgather(tf.constant([float(R)]), name="named", ignore_name_scope=True), [0, 1])
    t.equal(hvd.allgather(tf.zeros([0, 2]) if R else tf.ones([1, 2])), [[1, 1]])
    traced = tf.function(lambda x: hvd.allgather(x, name="traced.gather"))
    t.equal(traced(tf.constant(rows(R))), want)
    got = session_run(lambda: hvd.allgather(tf.constant(rows(R))))
    t.equal(got, want)


@symbol("allgather")
def gradient_of_allgather(t):
    """The average over the ranks of the gradient of this rank's rows."""
    x = tf.Variable(tf.cast(rows(R), tf.float32))
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(hvd.allgather(x.read_value()) * tf.constant([[1.0], [2.0], [3.0]]))
    t.equal(tape.gradient(y, x), [[1, 1]] if R == 0 else [[2, 2], [3, 3]])


@symbol("grouped_allgather")
def grouped_allgather(t):
    x = tf.cast(rows(R), tf.float32)
    want = np.concatenate([rows(r) for r in range(N)])
    got = hvd.grouped_allgather([x, 2 * x[:1]], name="grouped")
    assert isinstance(got, list)
    t.equal(got[0], want)
    t.equal(got[1], [[2, 2], [4, 4]])
    v = tf.Variable(x)
    with tf.GradientTape() as tape:
        parts = hvd.grouped_allgather([v.read_value(), 3 * v.read_value()])
        y = tf.reduce_sum(parts[0]) + tf.reduce_sum(parts[1])
    t.equal(tape.gradient(y, v), np.full([R + 1, 2], 4))


@symbol("broadcast")
def broadcast(t):
    for root in range(N):
        for dtype in DTYPES:
            t.equal(hvd.broadcast(tf.fill([3], tf.cast(R + 1, dtype)), root), [root + 1] * 3, dtype=dtype)
    t.equal(tf.cast(hvd.broadcast(tf.constant([R == 1]), 1), tf.int32), [1])
    t.equal(hvd.broadcast(tf.constant(R), 1, name="named.root", ignore_name_scope=True), 1)
    traced = tf.function(lambda x: hvd.broadcast(x, 1, name="traced.broadcast"))
    t.equal(traced(tf.constant([R])), [1])
    t.equal(session_run(lambda: hvd.broadcast(tf.constant([R]), 1)), [1])


@symbol("broadcast")
def gradient_of_broadcast(t):
    """To the root goes the average of all ranks' gradients; the others' inputs have no part in it."""
    x = tf.Variable([1.0])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(hvd.broadcast(x.read_value(), 1)) * (R + 1.0)
    t.equal(tape.gradient(y, x), [1.5] if R == 1 else [0])


@symbol("broadcast_")
def broadcast_in_place(t):
    a, b = tf.Variable([R, R]), tf.Variable(R + 5.0)
    got = hvd.broadcast_([a, b], 1)
    for now, want in ((a, [1, 1]), (b, 6), (got[0], [1, 1]), (got[1], 6)):
        t.equal(tf.convert_to_tensor(now), want)

    def in_graph():
        v = v1.get_variable("v", initializer=tf.constant([float(R)]))
        return hvd.broadcast_([v], 1, name="in.graph")

    t.equal(session_run(in_graph)[0], [1])


@symbol("alltoall")
def alltoall(t):
    x = tf.constant([[10 * R + i] for i in range(4)])
    t.equal(hvd.alltoall(x), [[0], [1], [10], [11]] if R == 0 else [[2], [3], [12], [13]])
    got, received = hvd.alltoall(x, splits=tf.constant([1, 3]), name="uneven")
    t.equal(got, [[0], [10]] if R == 0 else [[1], [2], [3], [11], [12], [13]])
    t.equal(received, [1, 1] if R == 0 else [3, 3], dtype=tf.int32)
    got, received = hvd.alltoall(x, splits=[0, 4] if R == 0 else [4, 0])
    t.equal(got, [[10], [11], [12], [13]] if R == 0 else [[0], [1], [2], [3]])
    t.equal(received, [0, 4] if R == 0 else [4, 0])
    got = session_run(lambda: hvd.alltoall(tf.constant([[R], [R]])))
    t.equal(got, [[0], [1]])


@symbol("alltoall")
def gradient_of_alltoall(t):
    x = tf.Variable([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        got, _ = hvd.alltoall(x.read_value(), splits=tf.constant([1, 2]))
        y = tf.reduce_sum(got) * (R + 1.0)
    t.equal(tape.gradient(y, x), [1, 2, 2])


@symbol("allreduce", "broadcast")
def what_does_not_fit_is_an_error_on_both(t):
    kinds = (tf.errors.OpError, hvd.HorovodInternalError)
    t.fails(kinds, ["shapes_differ"], hvd.allreduce, tf.ones([2 + R]), name="shapes_differ")
    t.fails((*kinds, ValueError), ["root"], hvd.broadcast, tf.ones([2]), R, name="roots_differ")
    t.equal(hvd.allreduce(tf.constant(1.0), op=hvd.Sum), N)


@symbol("join")
def join(t):
    if R == 0:
        t.equal(hvd.allreduce(tf.constant([4.0]), op=hvd.Sum, name="alone"), [4])
    last = hvd.join()
    assert int(last) == 0, last
