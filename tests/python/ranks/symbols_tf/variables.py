# SPDX-License-Identifier: Apache-2.0
"""Variables and Python objects of one rank for all."""

from harness import N, R, hvd, symbol, tf, v1
from horovod.tensorflow import functions


class Thing:
    """An object of a class of the script's own."""

    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return type(other) is Thing and other.n == self.n

    __hash__ = None


OBJECT = {"list": [1, 2.5, None], "text": "é" * 1000, "thing": Thing(3)}


@symbol("broadcast_variables")
def broadcast_variables(t):
    made = [
        tf.Variable(tf.fill([2], float(R))),
        tf.Variable(R),
        tf.Variable([R == 1]),
        tf.Variable(tf.zeros([0])),
    ]
    for inplace in (False, True):
        for v in made[:2]:
            v.assign(tf.fill(v.shape, tf.cast(R, v.dtype)))
        hvd.broadcast_variables(made, 1, inplace=inplace)
        t.equal(made[0].read_value(), [1, 1])
        t.equal(made[1].read_value(), 1)
        t.equal(tf.cast(made[2].read_value(), tf.int32), [1])
    hvd.broadcast_variables([], root_rank=0)


@symbol("broadcast_variables", "broadcast_global_variables")
def broadcast_variables_in_a_graph(t):
    with tf.Graph().as_default(), v1.Session() as session:
        v = v1.get_variable("v", initializer=tf.constant([float(R)]))
        w = v1.get_variable("w", initializer=tf.constant(R * 2))
        of_all = hvd.broadcast_global_variables(1)
        of_one = hvd.broadcast_variables([v], 0)
        session.run(v1.global_variables_initializer())
        session.run(of_all)
        t.equal(session.run(v), [1])
        t.equal(session.run(w), 2)
        v.load([R + 7.0], session)
        session.run(of_one)
        t.equal(session.run(v), [7])
        t.equal(session.run(w), 2)
    t.fails(RuntimeError, ["eager", "hvd.broadcast_variables"], hvd.broadcast_global_variables, 0)


@symbol("broadcast_object")
def broadcast_object(t):
    for root in range(N):
        assert hvd.broadcast_object(OBJECT if root == R else None, root) == OBJECT
    assert hvd.broadcast_object(R, root_rank=1, name="named") == 1
    with tf.Graph().as_default(), v1.Session() as session:
        assert hvd.broadcast_object([R], 1) == [1]
        assert hvd.broadcast_object(OBJECT if R else None, 1, session=session) == OBJECT


@symbol("broadcast_object_fn")
def broadcast_object_fn(t):
    with tf.Graph().as_default(), v1.Session() as session:
        from_1 = hvd.broadcast_object_fn(root_rank=1, session=session)
        for n in (1, 1000, 3):
            assert from_1(["x" * n, R]) == ["x" * n, 1]
        from_0 = functions.broadcast_object_fn(name="other")
        assert from_0(R) == 0


@symbol("allgather_object")
def allgather_object(t):
    assert hvd.allgather_object("x" * (1 + 5000 * R)) == ["x", "x" * 5001]
    assert hvd.allgather_object(Thing(R), name="things") == [Thing(0), Thing(1)]
    with tf.Graph().as_default(), v1.Session() as session:
        assert hvd.allgather_object(R, session=session) == [0, 1]
