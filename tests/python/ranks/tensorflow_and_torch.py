# SPDX-License-Identifier: Apache-2.0
"""tensorflow_and_torch.py first|last: both bindings in one process are one runtime and one world.

The word says which TensorFlow's place is; $TORCH_PACKAGES is the site-packages with a torch, behind TensorFlow's own.
"""

import contextlib
import gc
import importlib
import os
import sys

from checks import check, check_if, expect_error, main
from horovod.runner.util.threads import in_thread

(order,) = sys.argv[1:]
sys.path.append(os.environ["TORCH_PACKAGES"])
names = ["horovod.tensorflow", "horovod.torch"]
modules = {name: importlib.import_module(name) for name in (names if order == "first" else reversed(names))}
of_tf, of_torch = (modules[name] for name in names)
tf, torch = sys.modules["tensorflow"], sys.modules["torch"]

torch.set_num_threads(1)
of_torch.init()
R, N = of_tf.rank(), of_torch.size()


@check
def there_is_one_world():
    assert of_tf.is_initialized() and of_tf.rank() == of_torch.rank() and of_tf.size() == of_torch.size()
    of_tf.init()  # does nothing
    for name in ("init", "HorovodInternalError", "ProcessSet", "global_process_set"):
        assert getattr(of_tf, name) is getattr(of_torch, name), name
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "libhvd.so" in line}
    assert len(loaded) == 1, loaded


@check
def collectives_interleave():
    for i in range(20):
        first = of_torch.allreduce_async(torch.full([50], float(R + i)), name=f"torch.{i}", op=of_torch.Sum)
        now = of_tf.allreduce(tf.fill([50], float(R)), name=f"tf.{i}", op=of_tf.Sum)
        last = of_torch.allreduce_async(torch.ones(3), name=f"more.{i}", op=of_torch.Sum)
        assert now.numpy().tolist() == [N * (N - 1) / 2] * 50
        assert of_torch.synchronize(first).tolist() == [N * (N - 1) / 2 + N * i] * 50
        assert of_torch.synchronize(last).tolist() == [float(N)] * 3


@check
def one_name_belongs_to_both():
    # a rank's torch meets another's TensorFlow: the runtime knows tensors by their names
    value = float(R + 1)
    if R == 0:
        out = of_torch.allreduce(torch.tensor([value]), name="met", op=of_torch.Sum).tolist()
    else:
        out = of_tf.allreduce(tf.constant([value]), name="met", op=of_tf.Sum).numpy().tolist()
    assert out == [N * (N + 1) / 2], out


@check
def unnamed_ones_do_not_mix():
    for i in range(5):
        assert of_torch.allreduce(torch.tensor([float(i)]), op=of_torch.Sum).item() == N * i
        assert of_tf.allreduce(tf.constant([[1.0, i]]), op=of_tf.Sum).numpy().tolist() == [[N, N * i]]
        assert of_torch.broadcast_object(("torch", R)) == ("torch", 0)
        assert of_tf.broadcast_object(("tf", R)) == ("tf", 0)


@check
def a_join_of_one_resets_names_of_both():
    if R == 0:  # it has more data than the other ranks
        for _ in range(3):
            of_torch.allreduce(torch.ones(1))
    of_tf.join()
    assert of_torch.allreduce(torch.ones(1), op=of_torch.Sum).item() == N


@check
def functions_run_beside_backward():
    model = torch.nn.Linear(30, 30)
    descent = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = of_torch.DistributedOptimizer(descent, model.named_parameters())
    of_torch.broadcast_parameters(model.state_dict(), root_rank=0)
    said = []

    @tf.function
    def step(x):
        return tf.add_n([of_tf.allreduce(x * i, name=f"in.{i}", op=of_tf.Sum) for i in range(8)])

    step(tf.ones([7]))
    thread = in_thread(lambda: said.extend(step(tf.ones([7])).numpy().tolist() for _ in range(10)))
    for i in range(10):
        optimizer.zero_grad()
        model(torch.full([2, 30], float(R + i))).sum().backward()
        optimizer.step()
    thread.join(60)
    assert said == [[28.0 * N] * 7] * 10
    weights = [p.tolist() for p in model.parameters()]
    assert all(w == weights for w in of_torch.allgather_object(weights))


@check_if(N > 1)
def an_error_of_one_leaves_the_other():
    wrong = of_torch.allreduce_async(torch.ones(2 + R), name="differs")
    assert float(of_tf.allreduce(tf.constant(1.0), op=of_tf.Sum)) == N
    expect_error(of_torch.HorovodInternalError, ["differs"], of_torch.synchronize, wrong)
    expect_error(Exception, ["differs"], of_tf.allreduce, tf.ones(2 + R), name="differs in tf")
    assert of_torch.allreduce(torch.tensor(1.0), op=of_torch.Sum).item() == N


@check
def shutdown_by_one_is_seen_by_the_other():
    left = of_torch.allreduce_async(torch.ones(3), name=f"nobody answers {R}")
    of_torch.barrier()  # all have submitted theirs
    of_tf.shutdown()
    assert not of_torch.is_initialized()
    words = ["has not been initialized; use hvd.init()"]
    expect_error(ValueError, words, of_torch.rank)
    expect_error((ValueError, RuntimeError), ["init"], of_torch.allreduce, torch.ones(1))
    expect_error((ValueError, tf.errors.OpError), words, of_tf.allreduce, tf.ones(1))
    with contextlib.suppress(of_torch.HorovodInternalError):
        of_torch.synchronize(left)
    gc.collect()
    of_tf.init()
    assert of_torch.allreduce(torch.tensor(1.0), op=of_torch.Sum).item() == N
    assert float(of_tf.allreduce(tf.constant(1.0), op=of_tf.Sum)) == N


main(R)
