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
    "ProgressCallback",
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
    """Elastic state of a Keras model and its optimizer, by default the compiled one; see hvd.elastic.

    kwargs: further values to save and synchronize, as attributes of the state: any picklable objects.
    """

    def __init__(self, model, optimizer=None, **kwargs):
        super().__init__(model, optimizer=optimizer, **kwargs)

    def _variables(self):
        variables.settle(self.model)  # on JAX, fit() holds the values
        return super()._variables()


def elastic_run(backend):
    """Returns the decorator hvd.elastic.run for the back end."""
    if backend == "tensorflow":
        from _hvd.tensorflow.elastic import run as of_tensorflow

        return of_tensorflow

    def run(func):
        """Decorator: func(state, ...) starts with rank 0's state on all ranks, and again after a
        failure."""
        return run_fn(as_collective_errors(func), reset_world)

    return run


class Api:
    """The functions of horovod.keras or horovod.tensorflow.keras, as attributes.

    keras: the Keras module that they serve. A value is a number, a list, an array or a tensor; results are
    tensors of Keras' back end, and in a graph of TensorFlow 1 the values of Keras' session. Shapes and
    dtypes are the same on all ranks, except dimension 0 in allgather().
    """

    def __init__(self, keras):
        values = Values(keras)
        self.backend = values.backend()
        Compression = self.Compression = compression_for(self.backend)
        self.reduce_value = values.allreduce

        def broadcast_global_variables(root_rank):
            """Assigns the root rank's values to the global variables of all ranks, in a TensorFlow 1 graph.

            Raises RuntimeError for another back end than TensorFlow.
            """
            return values.broadcast_global_variables(root_rank)

        def allgather(value, name=None):
            """Concatenates the values of all ranks along dimension 0, in the order of ranks."""
            return values.allgather(value, name)

        def broadcast(value, root_rank, name=None):
            """Returns the root rank's value on every rank."""
            return values.broadcast(value, root_rank, name)

        def reducescatter(value, name=None, op=Average):
            """Reduces a value over all ranks, by default to the mean; returns this rank's rows of it.

            The first dim0 % size ranks receive one row more than the rest.
            """
            return values.reducescatter(value, name, op)

        def load_model(
            filepath,
            custom_optimizers=None,
            custom_objects=None,
            compression=Compression.none,
            legacy_opts=False,
            **options,
        ):
            """Loads a model by Keras; its optimizer becomes a distributed one and keeps its state.

            custom_optimizers: a list of optimizer classes. custom_objects: {name: class or function}. Both
            are passed to Keras. legacy_opts: accepted as by Horovod, unused. options: the arguments of
            DistributedOptimizer (op=hvd.Sum), the same on all ranks; the file does not contain them.
            Raises ValueError if a Keras 3 optimizer accumulates gradients and backward_passes_per_step is
            not given.
            """
            del legacy_opts
            options["compression"] = compression
            return _load_model(keras, filepath, custom_optimizers, custom_objects, options)

        self.broadcast_global_variables = broadcast_global_variables
        self.allgather = allgather
        self.broadcast = broadcast
        self.reducescatter = reducescatter
        self.load_model = load_model
