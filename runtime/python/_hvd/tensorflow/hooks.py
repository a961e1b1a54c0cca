# SPDX-License-Identifier: Apache-2.0
"""Hooks of TensorFlow 1's sessions: MonitoredTrainingSession(hooks=[...]), Estimator.train(hooks=[...]).

Both build their operations in begin(), before the graph is finalized, for each graph. A rank that recreates
its session repeats the broadcast, so the other ranks must too. TensorFlow does that for AbortedError and
UnavailableError, which our operations never raise.
"""

import tensorflow as tf

from _hvd.basics import Average
from _hvd.process_sets import global_process_set
from _hvd.tensorflow.devices import on_device
from _hvd.tensorflow.functions import broadcast_global_variables
from _hvd.tensorflow.mpi_ops import _allreduce


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Copies all global variables of root_rank to all ranks when a session has been created.

    Random weights, or those of a checkpoint that only root_rank can read, are equal on all ranks
    afterwards. Put it first in the list of hooks, so that later ones (StopAtStepHook) see the broadcast
    global step.

    device: where the variables are broadcast, "" for TensorFlow's choice.
    """

    def __init__(self, root_rank, device=""):
        super().__init__()
        self.root_rank = root_rank
        self.bcast_op = None
        self.device = device

    def begin(self):
        graph = tf.compat.v1.get_default_graph()
        if self.bcast_op is None or self.bcast_op.graph is not graph:
            with on_device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session, coord):
        session.run(self.bcast_op)


_READS = {"VarHandleOp", "ReadVariableOp", "VariableV2", "Variable", "ResourceGather"}


def _stateful(operations):
    """The operations that these need and that have a state or a feed: inputs, random numbers, updates."""
    found, seen, todo = set(), set(), list(operations)
    while todo:
        op = todo.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.type == "Placeholder" or (op.op_def.is_stateful and op.type not in _READS):
            found.add(op)
        todo += [tensor.op for tensor in op.inputs]
        todo += op.control_inputs
    return found


class MetricAverageHook(tf.compat.v1.train.SessionRunHook):
    """Means over the ranks of scalar tensors, every so many runs of the session and after its last one.

    metrics: {name: scalar}, or a list of scalars, identified by their names; a scalar is a tensor, a
    variable or, as in LoggingTensorHook, a tensor's name in the graph. They are computed in those of the
    script's own runs that compute what they depend on, so that a run for the global step alone takes no
    batch from the input; the newest values count. every_n: runs from one exchange to the next; equal on all
    ranks, which must make as many runs. process_set: the ranks that are averaged.

    The last means are in `averages`, {name: float}, on every rank of the set; empty before the first
    exchange. The set's first rank logs them with tf.compat.v1.logging.info. A session that an error ends
    exchanges nothing at its end.
    """

    def __init__(self, metrics, every_n=100, process_set=global_process_set):
        super().__init__()
        if not isinstance(metrics, (dict, list, tuple)) or not metrics:
            raise ValueError(f"metrics is {metrics!r}; it must be a dict or a list of scalar tensors")
        if isinstance(every_n, bool) or not isinstance(every_n, int) or every_n < 1:
            raise ValueError(f"every_n is {every_n!r}; it must be a positive number of runs")
        self.averages = {}
        self._metrics = metrics
        self._every_n = every_n
        self._process_set = process_set
        self._runs = 0
        self._names = self._values = self._given = self._means = self._last = None
        self._state, self._known = set(), {}

    def begin(self):
        self._runs = 0
        self._names = self._values = self._given = self._means = self._last = None
        if not self._process_set.included():
            return
        scalars = _named_scalars(self._metrics)
        self._names = list(scalars)
        with tf.name_scope("MetricAverageHook"):
            self._values = tf.stack([tf.cast(tf.reshape(t, []), tf.float64) for t in scalars.values()])
            self._state, self._known = _stateful([self._values.op]), {}
            # not the values themselves: after the last run there may be no data to compute them from
            self._given = tf.compat.v1.placeholder(tf.float64, self._values.shape)
            options = {"process_set": self._process_set, "compression": "none"}
            self._means = _allreduce(self._given, op=Average, **options)

    def before_run(self, run_context):
        if self._means is None:
            return None
        is_due = self._last is None and (self._runs + 1) % self._every_n == 0
        if is_due or self._comes_along(run_context.original_args):
            return tf.compat.v1.train.SessionRunArgs(self._values)
        return None

    def _comes_along(self, run):
        """Whether a run computes the metrics without further steps of a state, such as an input's."""
        fetched = self._operations(run.fetches)
        fed = self._operations(list(run.feed_dict or {}))
        key = tuple(op.name for op in fetched), tuple(op.name for op in fed)
        if key not in self._known:
            self._known[key] = self._state <= _stateful(fetched).union(fed)
        return self._known[key]

    def _operations(self, structure):
        graph = self._values.graph
        elements = map(graph.as_graph_element, tf.nest.flatten(structure, expand_composites=True))
        return [getattr(element, "op", element) for element in elements]

    def after_run(self, run_context, run_values):
        self._runs += 1
        if run_values.results is not None:
            self._last = run_values.results
        if self._means is not None and self._runs % self._every_n == 0:
            self._exchange(run_context.session)

    def end(self, session):
        if self._last is not None and self._runs % self._every_n:
            self._exchange(session)

    def _exchange(self, session):
        means = session.run(self._means, {self._given: self._last})
        self.averages = dict(zip(self._names, means.tolist()))
        if self._process_set.rank() == 0:
            means = ", ".join(f"{name} = {mean:.6g}" for name, mean in self.averages.items())
            ranks = self._process_set.size()
            tf.compat.v1.logging.info(f"means over {ranks} ranks after {self._runs} runs: {means}")


def _named_scalars(metrics):
    """{name: tensor} of the default graph; ValueError for what is no scalar number."""
    graph = tf.compat.v1.get_default_graph()
    named = metrics.items() if isinstance(metrics, dict) else ((None, m) for m in metrics)
    scalars = {}
    for name, metric in named:
        tensor = _tensor_of(metric, graph)
        name = name or (metric if isinstance(metric, str) else tensor.op.name)
        if name in scalars:
            raise ValueError(f"metrics has {name} twice; give them names: {{'a': tensor, 'b': tensor}}")
        if not (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool):
            raise ValueError(f"metric {name} is of {tensor.dtype.name}; it must be a number")
        if not tensor.shape.is_compatible_with([]):
            raise ValueError(
                f"metric {name} has shape {tensor.shape}; it must be a scalar, as tf.reduce_mean gives"
            )
        scalars[name] = tensor
    return scalars


def _tensor_of(metric, graph):
    if not isinstance(metric, str):
        return tf.convert_to_tensor(metric)
    return graph.get_tensor_by_name(metric if ":" in metric else metric + ":0")


__all__ = ["BroadcastGlobalVariablesHook", "MetricAverageHook"]
