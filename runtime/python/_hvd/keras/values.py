# SPDX-License-Identifier: Apache-2.0
"""allreduce, allgather, broadcast and reducescatter of values: numbers, lists, arrays, tensors.

The result is a tensor of Keras' back end; in graphs of TensorFlow 1 it is the value, from Keras' session.
"""

import numpy as np

from _hvd import arrays, handles
from _hvd.basics import check_reduce_op, reduce_op_from
from _hvd.keras.compression import ways_of
from _hvd.keras.settings import backend_of
from _hvd.keras.variables import session_of


class Values:
    """allreduce, allgather, broadcast and reducescatter for one Keras module; see Api for the arguments.

    All wait for the result. On a back end other than tensorflow and torch, results are JAX arrays.
    """

    def __init__(self, keras):
        self._keras = keras

    def backend(self):
        return backend_of(self._keras)

    def allreduce(self, value, name, op, average, prescale_factor, postscale_factor, compression):
        op = check_reduce_op(reduce_op_from(op, average))
        scales = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
        backend = self.backend()
        if backend == "tensorflow":
            from _hvd.tensorflow import reductions

            tensor = self._constant(value, name)
            return _eval(reductions.allreduce(tensor, op=op, name=name, compression=compression, **scales))
        if backend == "torch":
            import torch

            from _hvd.torch import mpi_ops

            tensor = torch.as_tensor(value)
            return mpi_ops.allreduce(tensor, op=op, name=name, compression=compression, **scales)
        wire, own = ways_of(compression, name is not None)
        array = _numpy(value)
        wires = [wire if array.dtype.kind == "f" else None]
        sent, ctx = own.compress(array) if own else (array, None)
        one = _name("allreduce", name)
        (result,) = arrays.allreduce_all([sent], [one], op, prescale_factor, postscale_factor, wires=wires)
        return _jax(own.decompress(result, ctx) if own else result)

    def allgather(self, value, name):
        backend = self.backend()
        if backend == "tensorflow":
            from _hvd.tensorflow import mpi_ops

            return _eval(mpi_ops.allgather(self._constant(value, name), name=name))
        if backend == "torch":
            import torch

            from _hvd.torch import mpi_ops

            return mpi_ops.allgather(torch.as_tensor(value), name=name)
        return _jax(arrays.allgather(_numpy(value), _name("allgather", name)))

    def broadcast(self, value, root_rank, name):
        backend = self.backend()
        if backend == "tensorflow":
            from _hvd.tensorflow import mpi_ops

            return _eval(mpi_ops.broadcast(self._constant(value, name), root_rank, name=name))
        if backend == "torch":
            import torch

            from _hvd.torch import mpi_ops

            return mpi_ops.broadcast(torch.as_tensor(value), root_rank, name=name)
        return _jax(arrays.broadcast_all([_numpy(value)], [_name("broadcast", name)], root_rank)[0])

    def reducescatter(self, value, name, op):
        backend = self.backend()
        if backend == "tensorflow":
            from _hvd.tensorflow import reductions

            return _eval(reductions.reducescatter(self._constant(value, name), op=op, name=name))
        if backend == "torch":
            import torch

            from _hvd.torch import mpi_ops

            return mpi_ops.reducescatter(torch.as_tensor(value), op=op, name=name)
        return _jax(arrays.reducescatter(_numpy(value), _name("reducescatter", name), op))

    @staticmethod
    def _constant(value, name):
        import tensorflow as tf

        return value if tf.is_tensor(value) else tf.constant(value, name=name)

    def broadcast_global_variables(self, root_rank):
        if self.backend() != "tensorflow":
            raise RuntimeError(
                "hvd.broadcast_global_variables() is for graphs of TensorFlow 1; use "
                "hvd.callbacks.BroadcastGlobalVariablesCallback in fit()"
            )
        from _hvd.tensorflow import functions

        return _eval(functions.broadcast_global_variables(root_rank))


def _numpy(value):
    """Returns a numpy array with the back ends' default dtypes: Python numbers become 32 bits."""
    array = np.asarray(value)
    if not hasattr(value, "dtype"):
        array = array.astype({"f": np.float32, "i": np.int32}.get(array.dtype.kind, array.dtype))
    return array


def _jax(array):
    import jax

    return jax.numpy.asarray(array)


def _name(kind, name):
    return handles.auto_name(kind) if name is None else f"{kind}.{name}"


def _eval(result):
    """Returns the tensor, or in a graph of TensorFlow 1 its value."""
    session = session_of(None)
    return result if session is None else session.run(result)
