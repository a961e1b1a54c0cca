# SPDX-License-Identifier: Apache-2.0
"""readme_tensorflow.py [v1]: runs the programs of runtime/python/GUIDE.md that are TensorFlow's, and looks at
what they leave behind. v1: those in TensorFlow 1's way, after which nothing is eager any more.

A program is the indented lines of a section from an import on; all of it runs on every rank, in one folder.
"""

import contextlib
import os
import re
import shutil
import sys
import tempfile
import textwrap

import horovod.tensorflow as hvd
import tensorflow as tf
from _hvd import objects
from checks import check, expect_error, main
from horovod.runner.util.threads import in_thread
from horovod.tensorflow.data import compute_worker

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../runtime/python/GUIDE.md")
with open(README) as readme:
    SECTIONS = dict(part.split("\n", 1) for part in readme.read().split("\n## ")[1:])
hvd.init()
R, N = hvd.rank(), hvd.size()


def everywhere(value):
    return objects.allgather_object(value)


def same(variables):
    values = everywhere([v.numpy().tobytes() for v in variables])
    return all(value == values[0] for value in values)


@contextlib.contextmanager
def run(section, beside=lambda: None):
    """Gives the names that the section's program leaves behind, in its folder; beside() runs at the same time."""
    (program,) = re.findall(r"^    import .*\n(?:(?:    .*)?\n)+", SECTIONS[section], re.MULTILINE)
    folder = objects.broadcast_object(tempfile.mkdtemp() if R == 0 else None)
    names, before = {"__name__": "__main__"}, os.getcwd()
    os.chdir(folder)
    try:
        thread = in_thread(beside)
        exec(compile(textwrap.dedent(program), f"README.md, {section}", "exec"), names)
        thread.join(60)
        assert not thread.is_alive(), "what runs beside it has not ended"
        everywhere(None)
        yield names
    finally:
        os.chdir(before)
        everywhere(None)
        if R == 0:
            shutil.rmtree(folder)


def the_tape():
    with run("Training with TensorFlow: the tape") as names:
        images = tf.random.stateless_normal([30, 20], seed=[R, 0])
        labels = tf.argmax(images[:, :3], axis=1)
        first = float(names["step"](images, labels))
        for _ in range(30):
            last = float(names["step"](images, labels))
        assert last < first and same(names["weights"]), (first, last)


def order_join_and_barrier():
    with run("TensorFlow: order, join and barrier") as names:
        assert names["last"] == N - 1
        # with all N ranks there were 3 steps, then one rank less in each
        assert float(names["seen"]) == 3 * N + sum(range(N))
        assert len(set(everywhere(float(names["seen"])))) == 1


def gpus_xla_strategies():
    with run("TensorFlow: GPUs, XLA, strategies, versions") as names:
        assert names["total"].numpy().tolist() == [0, 2 * N]
        assert same([names["weight"]]) and names["mode"] == hvd.completion_mode()
        compiled = tf.function(lambda x: hvd.allreduce(x), jit_compile=True)
        expect_error(Exception, ["hvd.allreduce() cannot be compiled by XLA"], compiled, tf.ones(1))


def sync_batch_normalization():
    with run("SyncBatchNormalization") as names:
        layer, rows = names["layer"], everywhere(names["images"].numpy().tolist())
        every = tf.constant(sum(rows, []))
        assert len(every) == sum(4 + r for r in range(N))
        tf.debugging.assert_near(layer.moving_mean, 0.1 * tf.reduce_mean(every, 0), rtol=1e-4, atol=1e-5)
        sums = hvd.allreduce(tf.reduce_sum(names["normal"], 0), op=hvd.Sum)
        tf.debugging.assert_near(sums, tf.zeros(3), atol=1e-3)
        assert len(names["gradients"]) == 2 and same([layer.moving_mean, layer.moving_variance])


def keras():
    with run("Training with Keras") as names:
        assert sorted(os.listdir()) == ["model.keras"] and same(names["model"].trainable_variables)
        losses = names["history"].history["loss"]
        assert len(losses) == 3 and len({tuple(loss) for loss in everywhere(losses)}) == 1, losses


def elastic():
    with run("Elastic training with TensorFlow and Keras") as names:
        state, model, callbacks = names["state"], names["model"], names["callbacks"]
        assert (state.epoch, state.batch) == (3, 0) and same(model.trainable_variables)
        # again, with a failure
        state.epoch, begun = 0, []

        class Fail(tf.keras.callbacks.Callback):
            def on_train_begin(self, logs=None):
                begun.append((state.epoch, state.batch))

            def on_train_batch_end(self, batch, logs=None):
                if state.epoch == 1 and batch == 2 and len(begun) == 1:
                    raise hvd.HorovodInternalError("injected")

        callbacks.append(Fail())
        state.commit()
        names["train"](state)
        assert begun == [(0, 0), (1, 1)], begun  # the second time from the commit behind two batches
        assert (state.epoch, state.batch) == (3, 0) and same(model.trainable_variables)


def data_service():
    def prepare():
        compute_worker.main(1, "compute", "config.json", 60)

    with run("tf.data service", prepare) as names:
        assert sorted(sum(everywhere(names["numbers"]), [])) == list(range(0, 120, 2)), names["numbers"]
        assert sorted(os.listdir()) == ["config.json"]


def tensorflow_1():
    with run("Training in TensorFlow 1's way") as names:
        assert os.listdir() == ["checkpoints"]
        saved = tf.train.load_checkpoint("checkpoints")
        assert saved.get_tensor("global_step") == 100 // N and saved.get_tensor("w").shape == (3,)
        mean = names["hooks"][1].averages["loss"]
        assert 0 < mean < 100 and everywhere(mean) == [mean] * N, mean


if sys.argv[1:] == ["v1"]:
    check(tensorflow_1)
else:
    programs = the_tape, order_join_and_barrier, gpus_xla_strategies, sync_batch_normalization
    for program in (*programs, keras, elastic, data_service):
        check(program)
main(R)
