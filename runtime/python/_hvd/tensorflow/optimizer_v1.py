# SPDX-License-Identifier: Apache-2.0
"""hvd.DistributedOptimizer, and its implementation for TensorFlow 1's tf.compat.v1.train.Optimizer.

    minimize() -> compute_gradients() -> user's clipping -> apply_gradients()
                    the wrapped one's,                        the wrapped one's
                    then reduced

Design. The returned object is an Optimizer around the user's. It has the slots, slot names and checkpoints
of the wrapped one, so a checkpoint can be used with and without Horovod. In graphs, operations are matched
by the names of their nodes: all ranks must build the same graph.

Gradients are reduced exactly once. Gradients from elsewhere than compute_gradients() (tf.gradients(), Keras
around a v1 optimizer) would reach apply_gradients() unreduced and ranks would silently diverge, so
apply_gradients() reduces gradients without a mark (marks.py). Where a gradient of compute_gradients() may
have lost its mark, sums are refused, because they would be reduced twice.

op=Adasum combines the changes of the variables instead of the gradients: each rank takes its local step,
and then the changes since the last exchange are combined. (Horovod's optimizer for Adasum only calls the
wrapped apply_gradients(), so it never exchanges anything.)
"""

import functools

import tensorflow as tf

from _hvd import basics
from _hvd.basics import Adasum, Average, Sum
from _hvd.options import named_options
from _hvd.process_sets import global_process_set, is_alone, process_set_id
from _hvd.tensorflow import marks
from _hvd.tensorflow.aggregation import LocalGradientAggregationHelper
from _hvd.tensorflow.completion import in_turn
from _hvd.tensorflow.compression import Compression
from _hvd.tensorflow.gradients import (
    LocalSources,
    _make_allreduce_grads_fn,
    check_gradient_options,
    reduce_but_local,
)
from _hvd.tensorflow.reductions import allreduce

_LegacyOptimizer = tf.compat.v1.train.Optimizer
_TRAIN_OP = tf.compat.v1.GraphKeys.TRAIN_OP


class _Wrapper(_LegacyOptimizer):
    """Base of both optimizers: forwards slots, variables and checkpoints to the wrapped optimizer."""

    def __init__(self, optimizer, name, use_locking):
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer

    def get_slot(self, *args, **kwargs):
        """Returns a slot variable of the wrapped optimizer, or None."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args, **kwargs):
        """Returns the list of the names of the wrapped optimizer's slots."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args, **kwargs):
        """Returns the list of the wrapped optimizer's variables."""
        return self._optimizer.variables(*args, **kwargs)

    # The interface of tf.train.Checkpoint: in a checkpoint, this optimizer is the wrapped one.

    def _trackable_children(self, *args, **kwargs):
        return self._optimizer._trackable_children(*args, **kwargs)

    def _lookup_dependency(self, *args, **kwargs):
        self._optimizer._maybe_initialize_trackable()  # TensorFlow 2.12 leaves it to the caller
        return self._optimizer._lookup_dependency(*args, **kwargs)

    @property
    def _deferred_dependencies(self):
        self._optimizer._maybe_initialize_trackable()
        return self._optimizer._deferred_dependencies

    def _create_or_restore_slot_variable(self, *args, **kwargs):
        return self._optimizer._create_or_restore_slot_variable(*args, **kwargs)


def _one_train_op(apply_gradients):
    """Decorator: in a graph, the collection TRAIN_OP gets the operation that apply_gradients returns, not
    that of the wrapped optimizer, which is only a part of it."""

    @functools.wraps(apply_gradients)
    def applied(self, *args, **kwargs):
        if tf.executing_eagerly():
            return apply_gradients(self, *args, **kwargs)
        before = tf.compat.v1.get_collection(_TRAIN_OP)
        result = apply_gradients(self, *args, **kwargs)
        tf.compat.v1.get_collection_ref(_TRAIN_OP)[:] = before
        if result not in before:
            tf.compat.v1.add_to_collection(_TRAIN_OP, result)
        return result

    return applied


class _DistributedOptimizer(_Wrapper):
    """Reduces the gradients of the wrapped optimizer's compute_gradients()."""

    def __init__(
        self,
        optimizer,
        name=None,
        use_locking=False,
        device_dense="",
        device_sparse="",
        compression=Compression.none,
        sparse_as_dense=False,
        op=Average,
        gradient_predivide_factor=1.0,
        backward_passes_per_step=1,
        average_aggregated_gradients=False,
        groups=None,
        process_set=global_process_set,
        scale_local_gradients=True,
    ):
        name = name or f"Distributed{type(optimizer).__name__}"
        super().__init__(optimizer, name, use_locking)
        self._allreduce_grads = _make_allreduce_grads_fn(
            name,
            device_dense,
            device_sparse,
            compression,
            sparse_as_dense,
            op,
            gradient_predivide_factor,
            groups,
            process_set=process_set,
        )
        self._local_vars = LocalSources()
        self._name_of_marks = name
        self._op = op
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self._agg_helper = None
        if backward_passes_per_step > 1:
            if tf.executing_eagerly():
                raise ValueError(
                    "backward_passes_per_step > 1 is not yet supported for _LegacyOptimizer with eager "
                    "execution; use an optimizer of tf.keras.optimizers, or build a tf.Graph"
                )
            self._agg_helper = LocalGradientAggregationHelper(
                backward_passes_per_step=backward_passes_per_step,
                allreduce_func=self._allreduce_grads,
                sparse_as_dense=sparse_as_dense,
                average_aggregated_gradients=average_aggregated_gradients,
                rank=basics.rank(),
                optimizer_type=LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY,
                process_set=process_set,
                scale_local_gradients=scale_local_gradients,
                name=name,
            )

    def register_local_var(self, var):
        """Excludes the gradients of var from the reduction. They are divided by the number of ranks, unless
        scale_local_gradients is False."""
        if self._agg_helper:
            self._agg_helper.register_local_var(var)
        else:
            self._local_vars.add(var)

    def compute_gradients(self, *args, **kwargs):
        """Returns a list of (reduced gradient, variable), with None for a variable without a gradient.

        Takes the arguments of tf.compat.v1.train.Optimizer.compute_gradients(). With
        backward_passes_per_step > 1 gradients are reduced in the last pass only; see aggregation.py.
        """
        pairs = self._reduce(self._optimizer.compute_gradients(*args, **kwargs))
        grads, variables = zip(*pairs)
        if self._agg_helper:  # its result belongs to tf.cond
            marks.mark(grads, process_set_id(self.process_set), self._name_of_marks)
        marks.remember(variables, self._name_of_marks)
        return pairs

    @_one_train_op
    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Returns the operation that applies the gradients; with backward_passes_per_step > 1 it does so
        in the last of that many runs only.

        Gradients that are not reduced yet are reduced first. Raises ValueError where that cannot be known
        and would change a sum, or where reduced gradients and others are mixed in an aggregation.
        """
        grads_and_vars = list(grads_and_vars)
        if not self._are_reduced(grads_and_vars):
            grads_and_vars = self._reduce(grads_and_vars)
        marks.remember([v for _, v in grads_and_vars], None)

        def apply():
            return self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)

        if not self._agg_helper:
            return apply()
        return self._agg_helper.apply_gradients(
            apply, self._optimizer, grads_and_vars, global_step=global_step, name=name
        )

    def _are_reduced(self, grads_and_vars):
        """Whether all gradients are reduced. Raises the ValueErrors of apply_gradients()."""
        set_id = process_set_id(self.process_set)
        pairs = [(g, v) for g, v in grads_and_vars if g is not None]
        by = marks.marks_of([g for g, _ in pairs])
        rest = [v for (_, v), of in zip(pairs, by) if of is None or of[0] != set_id]
        if not rest or is_alone(self.process_set):
            return not rest
        name = self._name_of_marks
        if self._op == Sum and name in marks.reducers(v for v in rest if v not in self._local_vars):
            raise ValueError(
                f"{name}: compute_gradients() has summed gradients of {rest[0].name}, and whether those "
                "that apply_gradients() is given were made of them cannot be known, so they might be "
                "summed twice. Use op=hvd.Average, or change gradients inside of a tf.function or "
                "tf.Graph, keeping their shapes"
            )
        if self._agg_helper and len(rest) < len(pairs):
            raise ValueError(
                f"{name}: with backward_passes_per_step > 1 apply_gradients() takes gradients that all "
                f"come from compute_gradients(), or none of them; that of {rest[0].name} does not"
            )
        return False

    def _reduce(self, grads_and_vars):
        grads, variables = (list(both) for both in zip(*grads_and_vars))
        if self._agg_helper:
            return list(zip(self._agg_helper.compute_gradients(grads, variables), variables))
        reduced = reduce_but_local(
            self._allreduce_grads,
            grads,
            variables,
            self._local_vars,
            self.scale_local_gradients,
            self.process_set,
        )
        return list(zip(reduced, variables))


class _DistributedAdasumOptimizer(_Wrapper):
    """Combines the changes that backward_passes_per_step steps of the wrapped optimizer made, by Adasum.

    The slot "delta_start" of a variable has its value after the last exchange, when it was the same on all
    ranks. The variable "step_count" counts steps. Both are saved in checkpoints.
    """

    def __init__(
        self,
        optimizer,
        name=None,
        use_locking=False,
        device_dense="",
        device_sparse="",
        compression=Compression.none,
        backward_passes_per_step=1,
    ):
        super().__init__(optimizer, name or f"DistributedDelta{type(optimizer).__name__}", use_locking)
        self._reduction = dict(
            device_dense=device_dense, device_sparse=device_sparse, compression=compression, op=Adasum
        )
        self._backward_passes_per_step = backward_passes_per_step

    def compute_gradients(self, *args, **kwargs):
        """Returns the wrapped optimizer's (gradient, variable) pairs: gradients are not exchanged."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    @_one_train_op
    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Returns an operation: the wrapped optimizer's step and, in every backward_passes_per_step-th run,
        the exchange of the changes."""
        grads_and_vars = list(grads_and_vars)
        variables = [v for g, v in grads_and_vars if g is not None]
        step = functools.partial(self._optimizer.apply_gradients, grads_and_vars, global_step, name)
        if not variables:
            return step()  # which raises the error
        passes = self._backward_passes_per_step
        with tf.init_scope():
            starts = [self._zeros_slot(v, "delta_start", self._name) for v in variables]
            count = self._create_non_slot_variable(0, "step_count", variables[0])
        with tf.name_scope(self._name):
            pass_before = tf.math.floormod(tf.identity(count), passes)
            with tf.control_dependencies([pass_before]):
                kept = self._when(pass_before, 0, lambda: _assign_all(starts, variables))
            with tf.control_dependencies([kept]):
                stepped = step()
            with tf.control_dependencies([stepped]):
                exchange = functools.partial(self._exchange, variables, starts)
                exchanged = self._when(pass_before, passes - 1, exchange)
            with tf.control_dependencies([exchanged]):
                counted = count.assign_add(1, use_locking=self._use_locking)
            return tf.group(stepped, exchanged, counted)

    def _when(self, now, at, do):
        """Returns an operation that runs do() if the tensor `now` equals `at`, or if every step is
        exchanged."""
        if self._backward_passes_per_step == 1:
            return do()
        return tf.cond(tf.equal(now, at), lambda: _done(do()), lambda: tf.constant(True))

    @in_turn()
    def _exchange(self, variables, starts):
        combined = []
        for i, (variable, start) in enumerate(zip(variables, starts)):
            before = start.read_value()
            name = f"{self._name}.{i}.{variable.name.split(':')[0]}"
            delta = variable.read_value() - before
            combined.append(before + allreduce(delta, name=name, **self._reduction))
        return _assign_all(variables, combined)

    def get_slot(self, var, name):
        """Returns a slot variable of this optimizer or of the wrapped one, or None."""
        slot = _LegacyOptimizer.get_slot(self, var, name)
        return slot if slot is not None else self._optimizer.get_slot(var, name)

    def get_slot_names(self):
        """Returns the names of this optimizer's slots and of the wrapped one's, as a list."""
        return _LegacyOptimizer.get_slot_names(self) + self._optimizer.get_slot_names()

    def variables(self):
        """Returns this optimizer's variables and the wrapped one's, as a list."""
        return _LegacyOptimizer.variables(self) + self._optimizer.variables()


def _assign_all(variables, values):
    return tf.group(*[v.assign(value, read_value=False) for v, value in zip(variables, values)])


def _done(operation):
    """Returns a tensor that depends on the operation: not every version of tf.cond accepts an operation."""
    with tf.control_dependencies([operation]):
        return tf.constant(True)


@named_options
def DistributedOptimizer(
    optimizer,
    name=None,
    use_locking=False,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    backward_passes_per_step=1,
    op=Average,
    gradient_predivide_factor=1.0,
    average_aggregated_gradients=False,
    num_groups=0,
    groups=None,
    process_set=global_process_set,
    scale_local_gradients=True,
):
    """Returns an optimizer that reduces gradients over all ranks before it applies them.

    optimizer: one of tf.compat.v1.train, or of Keras; for one of Keras, see horovod.keras. The result wraps
        it; do not use it by itself afterwards.
    name: prefix of the operations' names; by default "Distributed" and the optimizer's class.
    use_locking: for optimizers of tf.compat.v1.train.
    device_dense, device_sparse: the device of the operations for tensors and for IndexedSlices.
    compression: how gradients are sent, hvd.Compression.fp16 for example.
    sparse_as_dense: converts tf.IndexedSlices to dense gradients before the reduction.
    backward_passes_per_step: the gradients of this many runs are added up before one exchange and one step;
        with average_aggregated_gradients the sums are divided by it. In graphs its counter and sums are
        local variables: run tf.compat.v1.local_variables_initializer(), as MonitoredTrainingSession does.
    op: hvd.Average, hvd.Sum, or hvd.Adasum, which combines the changes of whole steps.
    gradient_predivide_factor: the average is sum(gradient / factor) * factor / ranks.
    groups: gradients that are reduced together: a number of groups, or a list of lists of variables,
        where a variable in no list is a group by itself. num_groups: the old name of the first.
    process_set: the ranks that reduce; the other ranks keep their own gradients.
    scale_local_gradients: see register_local_var().

    Raises ValueError for arguments that exclude each other, for an optimizer that is distributed already,
    and for backward_passes_per_step > 1 of a tf.compat.v1.train optimizer in eager execution;
    NotImplementedError for op=Adasum with a process set.
    """
    groups = check_gradient_options(op, gradient_predivide_factor, num_groups, groups, process_set)
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("Adasum does not support average_aggregated_gradients == True")
    if isinstance(optimizer, _Wrapper):
        raise ValueError("this optimizer is a DistributedOptimizer already; wrap it once")
    if not isinstance(optimizer, _LegacyOptimizer):
        return _of_keras(
            optimizer,
            op,
            name=name,
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
    if op == Adasum:
        if process_set_id(process_set) != 0:
            raise NotImplementedError("Adasum does not support process sets yet")
        return _DistributedAdasumOptimizer(
            optimizer, name, use_locking, device_dense, device_sparse, compression, backward_passes_per_step
        )
    return _DistributedOptimizer(
        optimizer=optimizer,
        name=name,
        use_locking=use_locking,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


def _of_keras(optimizer, op, **options):
    if op == Adasum:
        raise ValueError("op == Adasum is not supported yet with Keras")
    from _hvd.keras import of_tensorflow as keras  # which imports Keras

    return keras.DistributedOptimizer(optimizer, op=op, **options)


__all__ = ["DistributedOptimizer"]
