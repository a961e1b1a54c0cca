# SPDX-License-Identifier: Apache-2.0
"""Adds up the gradients of several backward passes on each rank, and reduces the sum once.

A distributed optimizer with backward_passes_per_step = n owns one of the two helpers. Every pass calls

    compute_gradients(grads, variables)      adds up; in the n-th pass also reduces, and resets the sums
    apply_gradients(apply, optimizer, ...)   calls apply in the n-th pass only

LocalGradientAggregationHelper works in TensorFlow 1's graphs: its variables are local ones (collection
LOCAL_VARIABLES), so they are neither saved nor broadcast. LocalGradientAggregationHelperEager works eagerly
and in tf.function. In the passes before the n-th, compute_gradients() of the first returns the gradients
unchanged, that of the second the sums so far; neither may be applied. `counter` is the number of passes
since the last exchange, 0 right after one. It is a variable, so that a graph can read it.
"""

import tensorflow as tf

from _hvd.process_sets import global_process_set
from _hvd.tensorflow.gradients import LocalSources, identity_of, reduce_but_local


def apply_op_to_not_none_tensors(tensor_op, tensors, *args):
    """Returns the list of tensor_op(tensor, *args) for each tensor; None stays None."""
    return [None if tensor is None else tensor_op(tensor, *args) for tensor in tensors]


def get_not_none_from_list(tensor_list):
    """Returns the list of the elements that are not None."""
    return [tensor for tensor in tensor_list if tensor is not None]


def _dense(grad, sparse_as_dense):
    if not isinstance(grad, tf.IndexedSlices):
        return grad
    if not sparse_as_dense:
        raise ValueError(
            "IndexedSlices are not supported when `backward_passes_per_step` > 1 and `sparse_as_dense` is "
            "False."
        )
    return tf.convert_to_tensor(grad)


def _count_iteration(optimizer):
    """Adds 1 to the optimizer's iterations: a pass that applies nothing counts as an iteration too."""
    iterations = getattr(optimizer, "iterations", None)
    return tf.no_op() if iterations is None else iterations.assign_add(1)


def _effect_of(function):
    """Returns function as a branch of tf.cond that returns an operation: both branches must return the same
    type, and optimizers return different ones."""

    def branch():
        results = tf.nest.flatten(function())
        with tf.control_dependencies([r for r in results if isinstance(r, (tf.Tensor, tf.Operation))]):
            return tf.no_op()

    return branch


class _Helper:
    """Base of both helpers. Raises ValueError for backward_passes_per_step < 1."""

    def _set_up(
        self,
        backward_passes_per_step,
        allreduce_func,
        sparse_as_dense,
        average_aggregated_gradients,
        process_set,
        scale_local_gradients,
    ):
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = backward_passes_per_step
        self.average_aggregated_gradients = average_aggregated_gradients
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self._reduce = allreduce_func
        self._local_vars = LocalSources()

    def register_local_var(self, var):
        """Excludes the gradients of this variable from the reduction."""
        self._local_vars.add(var)

    def _reduced(self, sums, variables):
        """Returns the reduced sums as a list. sums: {index into variables: sum}, in the result's order."""
        reduced = reduce_but_local(
            self._reduce,
            [sums.get(i) for i in range(len(variables))],  # the index names the operation on every rank
            variables,
            self._local_vars,
            self.scale_local_gradients,
            self.process_set,
        )
        reduced = [reduced[i] for i in sums]
        passes = self.backward_passes_per_step if self.average_aggregated_gradients else 1
        return [g if passes == 1 else g / tf.cast(passes, g.dtype) for g in reduced]


class LocalGradientAggregationHelper(_Helper):
    """Aggregation in graphs of TensorFlow 1; see the top of this file.

    allreduce_func: (gradients, variables) -> reduced gradients. optimizer_type: one of the two constants
    below. name: prefix of the names of its operations.
    """

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step,
        allreduce_func,
        sparse_as_dense,
        average_aggregated_gradients,
        rank,
        optimizer_type,
        process_set=global_process_set,
        scale_local_gradients=True,
        name="",
    ):
        self._set_up(
            backward_passes_per_step,
            allreduce_func,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set,
            scale_local_gradients,
        )
        self.rank = rank
        self.optimizer_type = optimizer_type
        self.name = name
        self.counter = None
        self.locally_aggregated_grads = []

    def _make_variables(self, grads):
        v1 = tf.compat.v1
        local = v1.GraphKeys.LOCAL_VARIABLES
        # unique, also where two optimizers of the same name train in one graph
        scope = v1.get_default_graph().unique_name(f"aggregation_variables_{self.name}{self.rank}")
        with v1.variable_scope(scope):
            self.counter = v1.get_variable(
                "aggregation_counter",
                shape=(),
                dtype=tf.int32,
                trainable=False,
                initializer=v1.zeros_initializer(),
                collections=[local],
            )
            self.locally_aggregated_grads = [
                v1.get_variable(
                    str(i),
                    shape=grad.shape,
                    dtype=grad.dtype,
                    trainable=False,
                    initializer=v1.zeros_initializer(),
                    collections=[local, "aggregating_collection"],
                )
                for i, grad in grads.items()
            ]
        if self.optimizer_type == self._OPTIMIZER_TYPE_KERAS:  # its session initializes no local variables
            made = v1.variables_initializer([self.counter, *self.locally_aggregated_grads])
            v1.keras.backend.get_session(op_input_list=()).run(made)

    def _exchange(self, places, variables):
        """Builds the branch of the n-th pass: returns the reduced sums, and sets the counter to 0."""
        sums = [total.read_value() for total in self.locally_aggregated_grads]
        with tf.control_dependencies(sums):
            reduced = self._reduced(dict(zip(places, sums)), variables)
        with tf.control_dependencies(reduced):
            reset = self.counter.assign(0, use_locking=True)
        with tf.control_dependencies([reset]):
            return [tf.identity(grad) for grad in reduced]

    def compute_gradients(self, grads, vars):
        """Builds one pass; returns a list of the shapes and dtypes of grads, with None where one is None.

        The results are reduced gradients only if `counter` is 0 after the pass. Raises ValueError for
        IndexedSlices unless sparse_as_dense.
        """
        # a separate scope: other operations of a rank (summaries) must not change the names in it
        with tf.name_scope(self.name or "aggregation"):
            return self._compute_gradients(list(grads), list(vars))

    def _compute_gradients(self, grads, variables):
        dense = {i: _dense(grad, self.sparse_as_dense) for i, grad in enumerate(grads) if grad is not None}
        self._make_variables(dense)
        totals = self.locally_aggregated_grads

        def reset_totals():
            return tf.group(*[total.assign(tf.zeros_like(total)) for total in totals])

        started = tf.cond(tf.equal(self.counter, 0), reset_totals, tf.no_op)
        with tf.control_dependencies([started]):
            added = [total.assign_add(grad) for total, grad in zip(totals, dense.values())]
        with tf.control_dependencies(added):
            count = self.counter.assign_add(1)
        with tf.control_dependencies([count]):
            results = tf.cond(
                tf.greater_equal(count, self.backward_passes_per_step),
                lambda: self._exchange(dense, variables),
                lambda: [tf.identity(grad) for grad in dense.values()],
            )
        results = iter(results if isinstance(results, (list, tuple)) else [results])
        return [next(results) if i in dense else None for i in range(len(grads))]

    def apply_gradients(self, apply_grads_closure, optimizer, *args, **kwargs):
        """Returns an operation that runs apply_grads_closure() if the gradients are reduced, and else only
        counts the iteration. args[0]: the (gradient, variable) pairs of compute_gradients()."""
        gradients = [grad for grad, _ in args[0] if grad is not None]
        with tf.control_dependencies(gradients):
            is_exchanged = tf.equal(self.counter.read_value(), 0)
        global_step = kwargs.get("global_step")

        def apply():
            return tf.group(apply_grads_closure())

        def skip():
            counted = [_count_iteration(optimizer)]
            if global_step is not None:
                counted.append(global_step.assign_add(tf.ones((), global_step.dtype.base_dtype)))
            return tf.group(*counted)

        return tf.cond(is_exchanged, apply, skip)


class LocalGradientAggregationHelperEager(_Helper):
    """Aggregation in eager execution and tf.function; see the top of this file."""

    def __init__(
        self,
        backward_passes_per_step,
        allreduce_func,
        sparse_as_dense,
        average_aggregated_gradients,
        process_set=global_process_set,
        scale_local_gradients=True,
    ):
        self._set_up(
            backward_passes_per_step,
            allreduce_func,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set,
            scale_local_gradients,
        )
        self.counter = tf.Variable(initial_value=0, trainable=False)
        self.locally_aggregated_grads = {}  # {identity of a variable: sum of its gradients}
        self._variables = {}  # {identity: variable} of the last pass

    def _total(self, grad, variable):
        """Returns the variable that sums this variable's gradients, or None if there never was one.

        It is created with the first gradient, also while a tf.function is traced.
        """
        key = identity_of(variable)
        total = self.locally_aggregated_grads.get(key)
        if total is None and grad is not None:
            with tf.init_scope():
                zeros = tf.zeros(variable.shape, grad.dtype)
                total = tf.Variable(zeros, trainable=False)
            total._hvd_of = variable  # keeps the variable alive, so that its identity is not reused
            self.locally_aggregated_grads[key] = total
        return total

    def _check_same(self, variables):
        """Raises ValueError if the passes of one exchange have different variables. Only eagerly: while a
        graph is traced, the number of the pass is unknown."""
        given = {identity_of(v): v for v in variables}
        is_within = tf.executing_eagerly() and self.counter != 0
        if is_within and given.keys() != self._variables.keys():
            raise ValueError(
                f"backward_passes_per_step={self.backward_passes_per_step}: pass {int(self.counter) + 1} "
                f"has gradients of other variables ({len(given)}) than those before "
                f"({len(self._variables)}); pass all of them each time, with None for what has no "
                "gradient, or use two optimizers"
            )
        self._variables = given

    def compute_gradients(self, grads, vars):
        """Runs one pass; returns a list in the order of grads, with None for a variable that never had a
        gradient.

        The results are reduced gradients if `counter` is 0 after the pass, else the sums so far. Raises
        ValueError for IndexedSlices unless sparse_as_dense, and for other variables than the pass before.
        """
        grads, variables = list(grads), list(vars)
        self._check_same(variables)
        grads = [_dense(grad, self.sparse_as_dense) for grad in grads]
        totals = [self._total(grad, v) for grad, v in zip(grads, variables)]
        places = [i for i, total in enumerate(totals) if total is not None]
        totals = [totals[i] for i in places]
        sums = [t if grads[i] is None else t.assign_add(grads[i]) for i, t in zip(places, totals)]
        sums = [tf.convert_to_tensor(total) for total in sums]
        count = self.counter.assign_add(1)

        def exchange():
            reduced = self._reduced(dict(zip(places, sums)), variables)
            reduced = [tf.identity(grad) for grad in reduced]
            with tf.control_dependencies(reduced):
                self.counter.assign(0)
                for total in totals:
                    total.assign(tf.zeros_like(total))
            return reduced

        results = tf.cond(
            tf.greater_equal(count, self.backward_passes_per_step), exchange, lambda: list(sums)
        )
        results = iter(results if isinstance(results, (list, tuple)) else [results])
        return [next(results) if i in places else None for i in range(len(grads))]

    def apply_gradients(self, apply_grads_closure, optimizer, *args, **kwargs):
        """Runs apply_grads_closure() if the gradients are reduced; else it only counts the iteration.

        args[0]: the (gradient, variable) pairs of compute_gradients().
        """

        def skip():
            # Keras' legacy optimizers count the pass inside apply_gradients(), so it is done here
            if hasattr(optimizer, "_aggregate_gradients"):
                transform = getattr(optimizer, "_transform_unaggregated_gradients", lambda pairs: pairs)
                optimizer._aggregate_gradients(transform(args[0]))
            return _count_iteration(optimizer)

        if tf.executing_eagerly():
            return apply_grads_closure() if self.counter == 0 else skip()
        return tf.cond(tf.equal(self.counter, 0), _effect_of(apply_grads_closure), _effect_of(skip))


__all__ = ["LocalGradientAggregationHelper", "LocalGradientAggregationHelperEager"]
