# SPDX-License-Identifier: Apache-2.0
"""Where a rank is, what was built in, process sets, and the small helpers."""

import os
import tempfile
from unittest import mock

import horovod.keras
import horovod.tensorflow.keras
from harness import N, R, hvd, session_run, symbol, tf, v1
from horovod.tensorflow import mpi_ops, util


@symbol("init", "is_initialized", "size", "rank")
def init(t):
    assert not hvd.is_initialized()
    t.fails(ValueError, ["Horovod has not been initialized; use hvd.init()."], hvd.rank)
    hvd.init()
    hvd.init()
    assert hvd.is_initialized()
    assert (hvd.rank(), hvd.size()) == (R, N)
    for package in (horovod.keras, horovod.tensorflow.keras, mpi_ops):
        assert (package.rank(), package.size()) == (R, N), package
        assert package.init is hvd.init and package.is_initialized()


@symbol("local_rank", "local_size", "cross_rank", "cross_size", "is_homogeneous")
def place(t):
    assert (hvd.local_rank(), hvd.local_size()) == (R, N)
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert hvd.is_homogeneous() is True


@symbol("mpi_enabled", "mpi_built", "mpi_threads_supported", "gloo_enabled", "gloo_built", "nccl_built")
@symbol("ddl_built", "ccl_built", "cuda_built", "rocm_built")
def built(t):
    for name in ("mpi_enabled", "mpi_built", "gloo_enabled", "gloo_built"):
        assert getattr(hvd, name)() in (True, False), name
    if not hvd.mpi_enabled():
        t.fails(ValueError, ["Horovod MPI is not enabled"], hvd.mpi_threads_supported)
    assert hvd.gloo_enabled() or hvd.mpi_enabled()
    for name in ("ddl_built", "ccl_built", "rocm_built"):
        assert getattr(hvd, name)() == 0, name
    assert hvd.nccl_built() >= 0 and hvd.cuda_built() in (True, False)


@symbol("size_op", "rank_op", "local_size_op", "local_rank_op", "process_set_included_op")
def place_when_the_graph_runs(t):
    def numbers():
        return [hvd.size_op(), hvd.rank_op(), hvd.local_size_op(), hvd.local_rank_op()]

    t.equal(tf.stack(numbers()), [N, R, N, R], dtype=tf.int32)
    t.equal(session_run(numbers), [N, R, N, R])
    t.equal(hvd.size_op(process_set_id=0, name="size"), N)
    t.equal(hvd.process_set_included_op(), 1)


@symbol("ProcessSet", "add_process_set", "remove_process_set", "global_process_set", "size_op")
@symbol("process_set_included_op", "horovod.tensorflow.allreduce")
def process_sets(t):
    assert hvd.global_process_set.process_set_id == 0 and hvd.global_process_set.included()
    mine = [hvd.add_process_set(hvd.ProcessSet([r])) for r in range(N)]
    for r, one in enumerate(mine):
        assert one.included() is (r == R) and one.ranks == [r]
        assert int(hvd.process_set_included_op(one.process_set_id)) == (r == R)
    assert (mine[R].size(), mine[R].rank()) == (1, 0)
    t.equal(hvd.size_op(mine[R].process_set_id), 1)
    t.equal(hvd.allreduce(tf.fill([3], float(R)), op=hvd.Sum, process_set=mine[R]), [R] * 3)
    t.fails(ValueError, [], hvd.add_process_set, [0])
    for one in mine:
        assert hvd.remove_process_set(one) is True
        assert one.process_set_id is None
    assert hvd.remove_process_set(hvd.global_process_set) is False


@symbol("start_timeline", "stop_timeline")
def timeline(t):
    """What is in it: test_timeline.py."""
    path = os.path.join(tempfile.mkdtemp(), "timeline.json")
    hvd.start_timeline(path, mark_cycles=True)
    hvd.stop_timeline()
    assert os.path.exists(path) == (R == 0)


@symbol("progress")
def progress(t):
    """What becomes of it: ranks/progress.py."""
    assert horovod.keras.progress is horovod.tensorflow.keras.progress is mpi_ops.progress is hvd.progress
    with mock.patch("_hvd._native.progress") as native:
        for value in (tf.constant(6), tf.constant(6.0), tf.Variable(6.0)):
            hvd.progress(metrics={"a": value})
    assert [call.args[-1] for call in native.call_args_list] == [{"a": 6.0}] * 3, native.call_args_list
    hvd.progress(step=tf.constant(7))

    @tf.function
    def in_a_graph(x):
        hvd.progress(metrics={"loss": x})

    t.fails(TypeError, ['metrics: "loss" is a', "not a number"], in_a_graph, tf.constant(1.0))


@symbol("check_num_rank_power_of_2")
def power_of_2(t):
    found = [n for n in range(20) if hvd.check_num_rank_power_of_2(n)]
    assert found == [1, 2, 4, 8, 16], found


@symbol("handle_average_backwards_compatibility")
def average_argument(t):
    choose = hvd.handle_average_backwards_compatibility
    assert (choose(None, None), choose(hvd.Max, None)) == (hvd.Average, hvd.Max)
    assert (choose(None, True), choose(None, False)) == (hvd.Average, hvd.Sum)
    t.fails(ValueError, ["op", "average"], choose, hvd.Sum, False)


@symbol("horovod.tensorflow.util._executing_eagerly")
def executing_eagerly(t):
    assert util._executing_eagerly() is True
    with tf.Graph().as_default():
        assert util._executing_eagerly() is False


@symbol("horovod.tensorflow.util._make_subgraph", "horovod.tensorflow.util._cache")
def subgraph_and_cache(t):
    calls = []

    @util._cache
    def made(a, b):
        calls.append((a, b))
        return [a + b]

    assert made(1, 2) is made(1, 2) and made(1, 3) == [4]
    with tf.Graph().as_default():
        made(1, 2)  # what was made for eager execution is not for graphs
    assert calls == [(1, 2), (1, 3), (1, 2)]
    graph = util._make_subgraph(lambda x: x + 1 if not tf.executing_eagerly() else None)
    t.equal(graph(tf.constant(1)), 2)


@symbol("vars_to_refs", "refs_to_vars")
def references_of_variables(t):
    a, b = tf.Variable(1.0), tf.Variable(2.0)
    refs = util.vars_to_refs([[a], [b, a]])
    assert refs == ((a.ref(),), (b.ref(), a.ref())) and hash(refs)
    back = util.refs_to_vars(refs)
    assert back[0][0] is a and back[1][0] is b and back[1][1] is a
    assert util.refs_to_vars(util.vars_to_refs(a)) is a


@symbol("horovod.tensorflow.mpi_ops._normalize_name")
def names_of_nodes(t):
    assert mpi_ops._normalize_name("a/b:0 c.d-e") == "a_b_0_c_d_e"
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [2], name="x/y")
        assert "HorovodAllreduce_x_y_0" in mpi_ops._allreduce(x).name
