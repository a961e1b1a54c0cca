# SPDX-License-Identifier: Apache-2.0
"""Distributed optimizers of Keras 3, on its back ends TensorFlow, torch and JAX.

All training calls Optimizer.apply(): fit(), a user's train_step(), apply_gradients() and, on JAX,
stateless_apply(). So gradients are reduced there, on entry, before they are clipped, averaged or unscaled;
a flag prevents nested calls from reducing again. A user's class may override apply_gradients() without
calling apply(), so gradients are reduced on entry to it too. compute_gradients(), which Keras 2 had, also
reduces; its gradients are applied without another reduction (computed.py).

    fit, train_step --> apply_gradients --> apply --> [reduce] --> Keras' apply (clip, update, EMA)
                         stateless_apply ----^

Gradient accumulation (gradient_accumulation_steps, backward_passes_per_step): gradients add up in Keras'
own accumulators on each rank, and the pass that applies the sum reduces it. Keras' apply() then gets empty
accumulators, and the reduced sum as the gradient. An optimizer with its own apply() (MultiOptimizer) may
use a gradient in any way, so the gradients of every pass are reduced.

Loss scaling: LossScaleOptimizer checks for infinities and skips the step of the inner optimizer if it finds
one. All ranks must decide the same, so around a distributed optimizer the reduction precedes the check
(`_agree_on_loss_scale`). Then every pass of an accumulation is reduced.

XLA: XLA cannot compile our TensorFlow operation, and Keras uses XLA by default on a GPU. `xla.py` sets such
a model's jit_compile to False and warns. On JAX everything is compiled.
"""

import functools

from _hvd.basics import Max
from _hvd.keras.computed import Computed
from _hvd.keras.local import agreed, clip_over_all_ranks, clipping
from _hvd.keras.reduction import reduce_gradients, reducer
from _hvd.keras.replica import after_apply
from _hvd.keras.settings import (
    Distributed,
    backend_variable,
    innermost,
    is_distributed,
    keys_of,
    plain_class,
)
from _hvd.keras.xla import turn_off_xla


def _backend():
    import keras

    return keras.backend.backend()


class CallableList(list):
    """A list for scripts that call optimizer.variables(), which was a method before Keras 3."""

    def __call__(self):
        return self


class Distributed3(Computed, Distributed):
    """The methods that DistributedOptimizer puts before those of a Keras 3 optimizer's class."""

    @property
    def variables(self):
        return CallableList(super().variables)

    @property
    def lr(self):
        """Keras 2's name of learning_rate."""
        return self.learning_rate

    @lr.setter
    def lr(self, value):
        self.learning_rate = value

    def _hvd_reduce(self, grads, variables, is_by_scaler=False):
        """Returns the gradients reduced over all ranks, in the order of `variables`.

        Where passes are summed, they are multiplied by the number of passes: Keras computes the mean.
        is_by_scaler: the caller is LossScaleOptimizer, which checks them for infinities.
        """
        run, settings = self._hvd, self._hvd_settings
        times = settings.of_passes()

        def make():
            return reducer(_backend(), self._hvd_name(), settings, times)

        places = [i for i, v in enumerate(variables) if self._overwrite_variable_with_gradient(v)]
        rest = [None if i in places else g for i, g in enumerate(grads)]
        reduced = reduce_gradients(run, settings, make, rest, variables, times)
        if is_by_scaler or hasattr(self, "inner_optimizer"):
            reduced = agreed(self, reduced, variables)
        if not places:
            return reduced
        maxima = self._hvd_maxima([grads[i] for i in places], [variables[i] for i in places])
        for i, value in zip(places, maxima):
            reduced[i] = value
        return reduced

    def _hvd_maxima(self, values, variables):
        """Returns the maximum over all ranks of values that overwrite a variable, such as float8's amax.

        Keras also takes the maximum of such values over several passes.
        """
        run, settings = self._hvd, self._hvd_settings
        local = run.local_keys()
        todo = [None if local & keys_of(v) else g for g, v in zip(values, variables)]
        if settings.is_alone() or all(g is None for g in todo):
            return values
        if run.maxima is None:
            run.maxima = reducer(_backend(), f"{self._hvd_name()}.max", settings.of_values(Max))
        return [g if t is None else m for g, t, m in zip(values, todo, run.maxima(todo, variables))]

    def _hvd_accumulate(self, grads, variables, steps):
        """Returns the gradients to pass to Keras' apply() in this pass of an accumulation; see the top of
        this file."""
        from keras import ops

        replacing = [self._overwrite_variable_with_gradient(v) for v in variables]
        if any(replacing):  # Keras keeps the maximum over passes, so each pass needs that of all ranks
            only = self._hvd_reduce([g if r else None for g, r in zip(grads, replacing)], variables)
            grads = [o if r else g for g, o, r in zip(grads, only, replacing)]
        at = [i for i, g in enumerate(grads) if g is not None and not replacing[i]]
        sums = {i: self._accumulated_gradients[self._get_variable_index(variables[i])] for i in at}
        at = [i for i in at if sums[i] is not None]
        mine = [_dense(grads[i]) for i in at]
        is_step = ops.equal(ops.mod(ops.add(self._iterations, 1), steps), 0)
        held = [ops.convert_to_tensor(sums[i]) for i in at]
        totals = dict(zip(at, [ops.add(g, h) for g, h in zip(mine, held)]))

        def exchange():
            reduced = self._hvd_reduce([totals.get(i) for i in range(len(grads))], variables)
            return [reduced[i] for i in at]

        reduced = ops.cond(is_step, exchange, lambda: list(mine))
        for i, g, h in zip(at, reduced, held):
            sums[i].assign(ops.where(is_step, ops.zeros_like(h), h))
            grads[i] = g
        return grads

    def _hvd_steps(self):
        """Returns how many passes are added up in Keras' accumulators before the reduction; None for
        one."""
        steps = getattr(self, "gradient_accumulation_steps", None)
        return steps if steps and _adds_up(plain_class(self)) else None

    def _hvd_once(self, grads, variables):
        """Returns the gradients of one outer call, reduced unless compute_gradients() has reduced them."""
        if not self.built:
            self.build(variables)
        done, steps = self._hvd_computed(grads, variables), self._hvd_steps()
        if all(done):
            return grads
        rest = [None if d else g for d, g in zip(done, grads)]
        rest = self._hvd_accumulate(rest, variables, steps) if steps else self._hvd_reduce(rest, variables)
        return [g if d else r for d, g, r in zip(done, grads, rest)]

    def apply(self, grads, trainable_variables=None):
        grads = list(grads)
        if not grads:
            return super().apply(grads, trainable_variables)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        is_outer = not self._hvd.inside
        if is_outer and (variables or self.built):  # otherwise Keras raises its own error
            _check_lengths(grads, variables)
            grads = self._hvd_once(grads, variables)
        with self._hvd.entered(), clipping(self, grads, variables):
            result = super().apply(grads, trainable_variables)
        if is_outer:
            after_apply(self, variables)
        return result

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        """Reduces here too: some users' classes update variables here, as in Keras 2, without apply()."""
        pairs = list(grads_and_vars)
        if self._hvd.inside or not pairs:
            return super().apply_gradients(pairs, *args, **kwargs)
        grads, variables = [g for g, _ in pairs], [v for _, v in pairs]
        pairs = list(zip(self._hvd_once(grads, variables), variables))
        with self._hvd.entered():
            result = super().apply_gradients(pairs, *args, **kwargs)
        after_apply(self, variables)
        return result

    def stateless_apply(self, optimizer_variables, grads, trainable_variables):
        run = self._hvd
        if run.inside or not hasattr(self, "inner_optimizer"):
            return super().stateless_apply(optimizer_variables, grads, trainable_variables)
        grads = self._hvd_reduce(list(grads), self._trainable_variables)
        with run.entered(), clipping(self, grads, self._trainable_variables):
            return super().stateless_apply(optimizer_variables, grads, trainable_variables)

    def compute_gradients(self, loss, var_list, tape=None):
        """Returns a list of (reduced gradient, variable), as Keras 2 did. On TensorFlow only.

        loss: a function, or a tensor and the tf.GradientTape that recorded it. var_list: variables, or a
        function that returns them. With several passes per step the gradients are this rank's, and
        apply_gradients() adds them up and reduces the sum.
        Raises NotImplementedError on another back end, ValueError for a tensor without a tape.
        """
        if _backend() != "tensorflow":
            raise NotImplementedError(
                "compute_gradients() needs Keras' back end tensorflow; elsewhere use fit(), or apply()"
            )
        grads, variables = tape_gradients(loss, var_list, tape)
        if not self._hvd_steps():
            grads = self._hvd_marked(self._hvd_reduce(grads, variables), variables)
        return list(zip(grads, variables))

    def _compute_gradients(self, loss, var_list, grad_loss=None, tape=None):
        return self.compute_gradients(loss, var_list, tape)


def tape_gradients(loss, var_list, tape):
    """Returns two lists, the gradients of a loss and its variables. See compute_gradients()."""
    import tensorflow as tf

    if tape is None and not callable(loss):
        raise ValueError("`tape` is required when a `Tensor` loss is passed.")
    tape = tape or tf.GradientTape()
    if callable(loss):
        with tape:
            loss = loss()
    variables = list(var_list() if callable(var_list) else var_list)
    return list(tape.gradient(loss, [backend_variable(v) for v in variables])), variables


def _check_lengths(grads, variables):
    if len(grads) != len(variables):
        raise ValueError(
            f"apply() got {len(grads)} gradients for {len(variables)} variables; pass one for each"
        )


def _dense(grad):
    if hasattr(grad, "indices") and hasattr(grad, "dense_shape"):  # tf.IndexedSlices
        import tensorflow as tf

        return tf.convert_to_tensor(grad)
    return grad


def _adds_up(cls):
    """Whether optimizers of this class accumulate the gradients of several passes by Keras' own code."""
    import keras

    names = ("apply_gradients", "apply", "_backend_apply_gradients")
    return all(getattr(cls, n, None) is getattr(keras.optimizers.Optimizer, n, None) for n in names)


def passes_of(optimizer):
    """Returns the number of passes that the optimizer adds up for one step, by Keras' own accumulation."""
    return getattr(innermost(optimizer), "gradient_accumulation_steps", None) or 1


def set_passes(optimizer, passes, before=1):
    """Sets Keras' own gradient accumulation to backward_passes_per_step=passes.

    before: the number that an earlier DistributedOptimizer has set. Raises ValueError where the
    accumulation is in use already, cannot be used by this class or comes too late; NotImplementedError
    before Keras 3.1.
    """
    inner = innermost(optimizer)
    if before > 1 and before != passes:
        inner.gradient_accumulation_steps = None
    if passes in (1, before):
        return
    if getattr(inner, "gradient_accumulation_steps", None):
        raise ValueError(
            f"backward_passes_per_step={passes} and the optimizer's own gradient_accumulation_steps="
            f"{inner.gradient_accumulation_steps} both accumulate gradients; give one of them"
        )
    if not hasattr(inner, "gradient_accumulation_steps"):
        raise NotImplementedError(
            "backward_passes_per_step > 1 needs a Keras that has gradient_accumulation_steps (3.1 or newer)"
        )
    if not _adds_up(plain_class(inner)):
        raise ValueError(
            f"backward_passes_per_step={passes}: {type(inner).__name__} does not add up gradients as other "
            f"optimizers of Keras do; give gradient_accumulation_steps={passes} to those within it"
        )
    if inner.built:
        raise ValueError(
            f"backward_passes_per_step={passes} needs an optimizer that has not been built, or was built "
            "with it; wrap it before fit()"
        )
    inner.gradient_accumulation_steps = passes


def begin_step(optimizer):
    """Makes the next pass of a loaded optimizer the first of a step, as on ranks that create a new one.

    The gradients that were added up since the last step are dropped: they are those of a single rank.
    """
    from keras import ops

    inner = innermost(optimizer)
    if passes_of(inner) > 1 and inner.built:
        inner._iterations.assign(inner._iterations - inner._iterations % passes_of(inner))
        for total in inner._accumulated_gradients:
            if total is not None:
                total.assign(ops.zeros(total.shape, total.dtype))


def prepare(optimizer):
    """Patches Keras, once per process: loss scaling, clipping, and XLA on TensorFlow."""
    import keras

    clip_over_all_ranks(keras.optimizers.Optimizer)
    _agree_on_loss_scale(keras.optimizers.LossScaleOptimizer)
    if _backend() == "tensorflow":
        turn_off_xla(keras.Model)


def _agree_on_loss_scale(scaler):
    """Patches LossScaleOptimizer: around a distributed optimizer it reduces before its check for
    infinities. With distributed optimizers deeper within (MultiOptimizer), it raises ValueError."""
    if getattr(scaler, "_hvd_agrees", False):
        return

    def within(self):
        inner = getattr(self, "inner_optimizer", None)
        if isinstance(self, Distributed) or not is_distributed(inner):
            return None
        if not isinstance(inner, Distributed):
            raise ValueError(
                "loss scaling must know the gradients of all ranks, and the optimizers within its "
                f"{type(inner).__name__} exchange them later; give it hvd.DistributedOptimizer("
                f"{type(inner).__name__}(...)), of optimizers that are not distributed"
            )
        return None if inner._hvd.inside else inner

    plain_apply, plain_stateless = scaler.apply, scaler.stateless_apply

    @functools.wraps(plain_apply)
    def apply(self, grads, trainable_variables=None):
        inner = within(self)
        if inner is None:
            return plain_apply(self, grads, trainable_variables)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
            if not self.built:
                self.build(trainable_variables)
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        grads = inner._hvd_reduce(list(grads), variables, True)
        with inner._hvd.entered():
            result = plain_apply(self, grads, trainable_variables)
        after_apply(inner, variables)
        return result

    @functools.wraps(plain_stateless)
    def stateless_apply(self, optimizer_variables, grads, trainable_variables):
        inner = within(self)
        if inner is None:
            return plain_stateless(self, optimizer_variables, grads, trainable_variables)
        grads = inner._hvd_reduce(list(grads), self._trainable_variables, True)
        with inner._hvd.entered():
            return plain_stateless(self, optimizer_variables, grads, trainable_variables)

    scaler.apply, scaler.stateless_apply = apply, stateless_apply
    scaler._hvd_agrees = True
