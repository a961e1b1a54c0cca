# SPDX-License-Identifier: Apache-2.0
"""Variables and Python objects of one rank for all."""

from harness import R, hvd, symbol, tf, v1
from horovod.tensorflow import functions


@symbol("broadcast_variables", "broadcast_global_variables")
def broadcast_variables_in_a_graph(t):
    with tf.Graph().as_default(), v1.Session() as session:
        v = v1.get_variable("v", initializer=tf.constant([float(R)]))
        of_all, of_one = hvd.broadcast_global_variables(1), hvd.broadcast_variables([v], 0)
        session.run(v1.global_variables_initializer())
        session.run(of_all)
        t.equal(session.run(v), [1])
        v.load([R + 7.0], session)
        session.run(of_one)
        t.equal(session.run(v), [7])


@symbol("check_replicas")
def check_replicas(t):
    """What it says of differences: ranks/replica_keras.py."""
    if not tf.executing_eagerly():
        return
    assert hvd.check_replicas([tf.Variable([1.0, 2.0]), tf.Variable(3)]) is None
    try:
        hvd.check_replicas([tf.Variable([float(R)], name="w")])
    except hvd.HorovodInternalError as e:
        assert "w" in str(e), e
    else:
        assert hvd.size() == 1, "nothing is said"


@symbol("broadcast_object_fn")
def broadcast_object_fn(t):
    with tf.Graph().as_default(), v1.Session() as session:
        from_1 = hvd.broadcast_object_fn(root_rank=1, session=session)
        for n in (1, 1000, 3):
            assert from_1(["x" * n, R]) == ["x" * n, 1]
        from_0 = functions.broadcast_object_fn(name="other")
        assert from_0(R) == 0
