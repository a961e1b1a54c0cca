# SPDX-License-Identifier: Apache-2.0
"""What ``horovod.keras`` and ``horovod.tensorflow.keras`` have in common, created for each one's Keras."""

from _hvd.basics import Average
from _hvd.elastic import as_collective_errors, reset_world, run_fn
from _hvd.elastic_keras import TensorFlowKerasState
from _hvd.keras import variables
from _hvd.keras.compression import compression_for
from _hvd.keras.loading import load_model as _load_model
from _hvd.keras.values import Values

CALLBACKS = (
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
)
ELASTIC = ("CommitStateCallback", "UpdateBatchStateCallback", "UpdateEpochStateCallback")
NAMES = (
    "Compression",
    "DistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "load_model",
    "reducescatter",
)


class KerasState(TensorFlowKerasState):
    """State of a Keras model, its optimizer, and whatever else is given by keyword."""

    def __init__(self, model, optimizer=None, **kwargs):
        super().__init__(model, optimizer=optimizer, **kwargs)

    def _variables(self):
        variables.settle(self.model)  # on JAX, fit() holds the values
        return super()._variables()


def elastic_run(backend):
    """hvd.elastic.run of the back end."""
    if backend == "tensorflow":
        from _hvd.tensorflow.elastic import run as of_tensorflow

        return of_tensorflow

    def run(func):
        """Decorator: func(state, ...) starts with rank 0's state on all ranks, and again after a
        failure."""
        return run_fn(as_collective_errors(func), reset_world)

    return run


class Api:
    """The functions of one Keras module."""

    def __init__(self, keras):
        values = Values(keras)
        self.backend = values.backend()
        Compression = self.Compression = compression_for(self.backend)
        self.reduce_value = values.allreduce

        def broadcast_global_variables(root_rank):
            """In graphs of TensorFlow 1: the root rank's global variables on all ranks."""
            return values.broadcast_global_variables(root_rank)

        def allgather(value, name=None):
            """Concatenates the values of all ranks along the first dimension."""
            return values.allgather(value, name)

        def broadcast(value, root_rank, name=None):
            """Returns the root rank's value on all ranks."""
            return values.broadcast(value, root_rank, name)

        def reducescatter(value, name=None, op=Average):
            """This rank's rows of the reduced value."""
            return values.reducescatter(value, name, op)

        def load_model(
            filepath,
            custom_optimizers=None,
            custom_objects=None,
            compression=Compression.none,
            legacy_opts=False,
            **options,
        ):
            """A saved model, whose optimizer is made distributed and keeps its state.

            custom_optimizers: optimizer classes; custom_objects: {name: class or function}; both are passed
            to Keras. legacy_opts: Horovod's, not needed here. options: those of DistributedOptimizer
            (op=hvd.Sum), which the file does not contain, equal on all ranks.
            """
            del legacy_opts
            options["compression"] = compression
            return _load_model(keras, filepath, custom_optimizers, custom_objects, options)

        self.broadcast_global_variables = broadcast_global_variables
        self.allgather = allgather
        self.broadcast = broadcast
        self.reducescatter = reducescatter
        self.load_model = load_model
