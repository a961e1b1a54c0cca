# SPDX-License-Identifier: Apache-2.0
"""Two ranks; the world of rank 0's operations ends: first by rank 1's shutdown(), then by its death.

Each of rank 0's operations, eager and in a graph, must raise Horovod's error. A MonitoredSession in which
both train when rank 1 dies must end rather than restart.
"""

import os
import signal
import sys
import threading

import horovod.tensorflow as hvd
import tensorflow as tf
from _hvd.elastic import is_failed_collective
from _hvd.tensorflow import mpi_ops
from checks import expect_error

hvd.shutdown()  # what a script before this one has left
hvd.init()
R = hvd.rank()
v1 = tf.compat.v1


def eager():
    expect_error(hvd.HorovodInternalError, WORDS, mpi_ops._allreduce, tf.ones([2]), name="alone")
    expect_error(tf.errors.UnknownError, WORDS, mpi_ops.allgather, tf.ones([2]), name="alone")
    expect_error(hvd.HorovodInternalError, WORDS, mpi_ops._grouped_allreduce, [tf.ones([2])] * 3)


def graph():
    def one(x):
        return mpi_ops._allreduce(x, name="alone_in_graph")

    def group(x):
        return mpi_ops._grouped_allreduce([x, x], name="alone_in_graph")

    def failed(f):
        try:
            tf.function(f)(tf.ones([2]))
        except tf.errors.UnknownError as e:
            assert not isinstance(e, hvd.HorovodInternalError) and is_failed_collective(e), e
            raise

    for f in (one, group):
        expect_error(tf.errors.UnknownError, WORDS, failed, f)


def session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        expect_error(tf.errors.UnknownError, WORDS, session.run, mpi_ops._allreduce(tf.ones([2])))


class Sessions(v1.train.SessionRunHook):
    def __init__(self):
        self.made = 0

    def after_create_session(self, session, coord):
        self.made += 1


def monitored(after_five_steps):
    """Trains with the other rank until it dies."""
    sessions = Sessions()
    with tf.Graph().as_default():
        w = v1.get_variable("w", [3])
        optimizer = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.01))
        step = optimizer.minimize(tf.reduce_sum(w * w))
        hooks = [hvd.BroadcastGlobalVariablesHook(0), sessions]
        try:
            with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
                for _ in range(5):
                    session.run(step)
                after_five_steps()
                session.run(step)
        except tf.errors.OpError as e:
            told = [line for line in e.message.splitlines() if "was lost" in line]
            print(f"monitored: {type(e).__name__} in session {sessions.made}: {told}", flush=True)
        else:
            raise AssertionError("no error in a MonitoredSession")


class All:
    """Each begins before the world ends, or after; all must end with its error."""

    def __init__(self):
        self.failed = []
        self.threads = [threading.Thread(target=self.run, args=(f,)) for f in (eager, graph, session)]
        for thread in self.threads:
            thread.start()

    def run(self, function):
        try:
            function()
        except BaseException as e:
            self.failed.append(e)

    def end(self):
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "an operation has not ended"
        if self.failed:
            raise self.failed[0]


assert float(mpi_ops._allreduce(tf.constant(1.0))) == 2
if R == 0:
    WORDS = ["rank 1", "shut"]
    All().end()
hvd.shutdown()
expect_error(tf.errors.FailedPreconditionError, ["hvd.init()"], mpi_ops._allreduce, tf.ones([1]))
expect_error(tf.errors.FailedPreconditionError, ["hvd.init()"], mpi_ops.size_op)
assert not is_failed_collective(tf.errors.FailedPreconditionError(None, None, "not initialized"))

hvd.init()
assert float(mpi_ops._allreduce(tf.constant(1.0))) == 2
if R == 1:
    monitored(lambda: os.kill(os.getpid(), signal.SIGKILL))
# The launcher ends the other ranks 5 s after the first exit that it sees (job.py: outlived).
signal.signal(signal.SIGTERM, signal.SIG_IGN)
WORDS, begun = ["rank 1"], []
monitored(lambda: begun.append(All()))
begun[0].end()
print("RANK 0 WAS TOLD", flush=True)
sys.exit()
