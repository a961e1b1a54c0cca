# SPDX-License-Identifier: Apache-2.0
"""``hvd.elastic``: TensorFlow training that continues from the last commit when a collective fails."""

import contextlib

import tensorflow as tf

from _hvd import basics, elastic_keras, objects
from _hvd.elastic import ArraysState, as_collective_errors, reset_world, run_fn
from _hvd.elastic_keras import TensorFlowKerasState


def run(func):
    """Decorator: func(state, ...) is called with rank 0's state on all ranks, and again after a failure.

    When a collective fails, eagerly, in a tf.function, in fit() or in a session, the last commit is
    restored, the ranks form a new world and func is called again, at most three times without a commit().
    Collectives before func belong in the state or in a reset callback, because only func is repeated.
    """
    return run_fn(as_collective_errors(func), reset_world)


class TensorFlowState(ArraysState):
    """State of TensorFlow variables, and whatever else is given by keyword.

    variables: in a graph of TensorFlow 1, none for all global ones. session: where these graphs run;
    none for the default session.
    """

    def __init__(self, variables=None, session=None, **kwargs):
        if variables is None and session is None and tf.executing_eagerly():
            raise ValueError(
                "hvd.elastic.TensorFlowState: give variables=, a list of the model's and the optimizer's; "
                "TensorFlow 2 has no global ones"
            )
        with session.graph.as_default() if session else contextlib.nullcontext():
            self.variables = list(tf.compat.v1.global_variables() if variables is None else variables)
        self.session = session or tf.compat.v1.get_default_session()
        if self.session is None and not tf.executing_eagerly():
            raise ValueError("hvd.elastic.TensorFlowState: in a graph it needs session=")
        self._keep_variables()
        super().__init__(bcast_object=objects.broadcast_object, get_rank=basics.rank, **kwargs)

    def _variables(self):
        return self.variables

    def _read(self, variables):
        return elastic_keras.read(variables, self.session)

    def _write(self, pairs):
        elastic_keras.write(pairs, self.session)


__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]
