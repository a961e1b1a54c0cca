# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's operations on a GPU: TensorFlow of processors with the device of tests/fakes/tensorflow.

TensorFlow itself places, allocates, copies and runs; CUDA and NCCL are fakes. tf.math.rint() is slow there
and TensorFlow continues meanwhile: a reader that does not wait for its stream sees old memory.
"""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from checks import check, expect_error, main
from fake_gpu import on_gpu

hvd.init()
R, N = hvd.rank(), hvd.size()
SIZES = (1, 5, 1000, 200_000)


def numbers(rank, n, shift=0):
    return (np.arange(n) % 97 + 1000 * rank + shift).astype(np.float32)


def same(tensor, want, device="GPU"):
    assert tensor.device.endswith(f"{device}:0"), tensor.device
    np.testing.assert_array_equal(tensor.numpy(), want)


@check
def each_rank_has_a_gpu_of_its_own():
    assert len(tf.config.list_physical_devices("GPU")) == 3
    assert [d.name for d in tf.config.get_visible_devices("GPU")] == [f"/physical_device:GPU:{R}"]
    assert hvd.gpu_available("tensorflow") and hvd.cuda_built() and hvd.nccl_built() == 22705


@check
def results_of_eager_operations_are_there():
    for n in SIZES:
        x, every = on_gpu(numbers(R, n)), [numbers(r, n) for r in range(N)]
        same(hvd.allreduce(x, op=hvd.Sum), sum(every))
        same(hvd.allgather(x), np.concatenate(every))
        same(hvd.broadcast(x, root_rank=N - 1), every[-1])
        same(hvd.grouped_allreduce([x, x + 0], op=hvd.Sum)[0], sum(every))
        rows = on_gpu(np.stack([numbers(R, n)] * N))
        same(hvd.reducescatter(rows, op=hvd.Sum), sum(every)[None])
    same(hvd.allgather(on_gpu(numbers(R, 3 if R == 0 else 0))), numbers(0, 3))
    same(hvd.allreduce(on_gpu(np.zeros(0, np.float32))), np.zeros(0, np.float32))
    half = on_gpu(np.full(4096, R + 1.0, np.float32))
    same(hvd.allreduce(half, op=hvd.Sum, compression=hvd.Compression.fp16), np.full(4096, N * (N + 1) / 2))


@check
def rows_go_where_splits_in_host_memory_say():
    x = on_gpu(np.repeat(np.arange(N, dtype=np.float32), 3)[: 2 * N + 1] + 10 * R)
    splits = [2] * (N - 1) + [3]
    got, received = hvd.alltoall(x, splits=splits)
    count = splits[R]
    want = [v for r in range(N) for v in (x.numpy() - 10 * R + 10 * r)[2 * R : 2 * R + count]]
    same(got, np.array(want, np.float32))
    assert received.numpy().tolist() == [count] * N


@check
def a_function_overlaps_and_reuses_memory():
    @tf.function
    def step(x):
        every = [hvd.allreduce(x, op=hvd.Sum, name=f"s{i}") for i in range(4)]
        rows = [hvd.allgather(x, name=f"g{i}") for i in range(4)]
        return every + hvd.grouped_allreduce(every, op=hvd.Average), rows

    for i in range(6):
        n = SIZES[1 + i % 3]
        reduced, rows = step(on_gpu(numbers(R, n, i)))
        for y in reduced:
            same(y, sum(numbers(r, n, i) for r in range(N)))
        for y in rows:
            same(y, np.concatenate([numbers(r, n, i) for r in range(N)]))


@check
def a_script_may_choose_the_cpu():
    x = on_gpu(numbers(R, 10))
    want = sum(numbers(r, 10) for r in range(N))
    same(hvd.allreduce(x, op=hvd.Sum, device_dense="/cpu:0"), want, "CPU")
    with tf.device("CPU:0"):
        same(hvd.allreduce(x, op=hvd.Sum), want, "CPU")


@check
def ranks_with_different_devices_get_an_error():
    with tf.device("CPU:0" if R == 0 else "GPU:0"):
        words = ["Mismatched CPU/GPU device selection", "rank 0 has it in CPU memory"]
        expect_error(tf.errors.FailedPreconditionError, words, hvd.allreduce, on_gpu([1.0]), name="differ")


@check
def variables_are_those_of_one_rank():
    with tf.device("GPU:0"):
        variables = [tf.Variable(numbers(R, n), name=f"v{n}") for n in SIZES]
    hvd.broadcast_variables(variables, root_rank=1)
    for variable, n in zip(variables, SIZES):
        assert variable.device.endswith("GPU:0"), variable.device
        np.testing.assert_array_equal(variable.numpy(), numbers(1, n))
    assert hvd.broadcast_object({"of": R}, root_rank=1) == {"of": 1}


@check
def gradients_of_a_tape_stay():
    with tf.device("GPU:0"):
        variable = tf.Variable(numbers(0, 1000), name="w")

    @tf.custom_gradient
    def model(v):  # TensorFlow computes nothing on this GPU: a gradient that is made there
        return tf.identity(v), lambda dy: on_gpu(numbers(R, 1000))

    total = sum(numbers(r, 1000) for r in range(N))
    for options in ({}, {"device_dense": "/gpu:0"}, {"groups": 1}, {"op": hvd.Sum}):
        with hvd.DistributedGradientTape(tf.GradientTape(), **options) as tape:
            y = model(variable)
        same(tape.gradient(y, [variable])[0], total if "op" in options else total / N)
    slices = tf.IndexedSlices(on_gpu([[1.0 + R]]), on_gpu([R], tf.int64), dense_shape=[N, 1])
    same(hvd.allreduce(slices, op=hvd.Sum).values, np.arange(1, N + 1, dtype=np.float32)[:, None])


@check
def sessions_of_graphs_use_the_same_gpu():
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None])
        with tf.device("GPU:0"):
            y = hvd.allreduce(tf.math.rint(x), op=hvd.Sum, name="of_a_session")
        with tf.compat.v1.Session() as session:
            for i in range(3):
                got = session.run(y, {x: numbers(R, 1000, i)})
                np.testing.assert_array_equal(got, sum(numbers(r, 1000, i) for r in range(N)))
    assert y.device == "/device:GPU:0", y.device


@check
def a_joined_rank_contributes_zeros():
    if R > 0:
        same(hvd.allreduce(on_gpu([2.0, 3.0]), op=hvd.Sum, name="joined"), [2.0 * (N - 1), 3.0 * (N - 1)])
    assert int(hvd.join()) >= 0


@check
def the_next_world_uses_it_too():
    hvd.shutdown()
    hvd.init()
    same(hvd.allreduce(on_gpu(numbers(R, 1000)), op=hvd.Sum), sum(numbers(r, 1000) for r in range(N)))


main(R)
