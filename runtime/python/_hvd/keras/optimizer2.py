# SPDX-License-Identifier: Apache-2.0
"""Distributed optimizers of Keras 2: tf.keras before TensorFlow 2.16 and tf_keras since.

The new kind (keras.optimizers.Optimizer) and the legacy one (OptimizerV2) have two ways to train:

    minimize --> compute_gradients --> [reduce] --> apply_gradients -----------------> update
    a tape of the user's ----------------------->  apply_gradients --> [reduce] ----> update
                         (also by LossScaleOptimizer: aggregate_gradients --> [reduce])

Horovod documents the first (computed.py). With the second, Horovod itself does not reduce: each rank would
train alone.

LossScaleOptimizer checks the gradients of every pass for infinities, and all ranks must get the same
result. With several passes per step, it is given zeros in the passes without an exchange. An infinity stays
in the sum, so all ranks skip that step. Gradients are unscaled before they are added up, because the scale
may change between two passes.
"""

import functools
import warnings

import tensorflow as tf

from _hvd.keras.computed import Computed
from _hvd.keras.local import agreed, clip_over_all_ranks, clipping
from _hvd.keras.reduction import reduce_gradients, reducer
from _hvd.keras.replica import after_apply
from _hvd.keras.settings import Distributed, keras_of
from _hvd.keras.xla import turn_off_xla
from _hvd.process_sets import process_set_id
from _hvd.tensorflow import marks


def _has(optimizer, *names):
    return all(callable(getattr(optimizer, name, None)) for name in names)


class Distributed2(Computed, Distributed):
    """The methods that DistributedOptimizer puts before those of a Keras 2 optimizer's class."""

    _HAS_AGGREGATE_GRAD = True

    def _hvd_make(self):
        return reducer("tensorflow", self._hvd_name(), self._hvd_settings)

    def _hvd_allreduce(self, grads, variables):
        """Reduces gradients for the aggregation helper, which excludes local variables itself."""
        run = self._hvd
        if self._hvd_settings.is_alone():
            return list(grads)
        if run.reduce is None:
            run.reduce = self._hvd_make()
        return run.reduce(grads, variables)

    @property
    def _agg_helper(self):
        """The helper that adds up the gradients of several backward passes; None for one pass per step."""
        run, s = self._hvd, self._hvd_settings
        if run.helper is None and s.passes > 1:
            with tf.init_scope():
                run.helper = _helper(self, s)
            for v in run.local_variables:
                run.helper.register_local_var(v)
        return run.helper

    def _allreduce(self, grads, vars):
        """Returns the reduced gradients; with several passes per step, see compute_gradients() of the
        helper. The name is Horovod's."""
        helper = self._agg_helper
        if helper is not None:
            grads = list(helper.compute_gradients(tuple(grads), tuple(vars)))
        else:
            grads = reduce_gradients(self._hvd, self._hvd_settings, self._hvd_make, grads, vars)
        return agreed(self, grads, vars) if hasattr(self, "inner_optimizer") else grads

    def _hvd_compute(self, function, *args, **kwargs):
        """Runs function, which is Keras' compute_gradients(), and returns its pairs with reduced
        gradients."""
        run = self._hvd
        if run.inside:
            return function(*args, **kwargs)
        with run.entered():
            pairs = list(function(*args, **kwargs))
        grads, variables = [g for g, _ in pairs], [v for _, v in pairs]
        grads = self._allreduce(grads, variables)
        return list(zip(self._hvd_marked(grads, variables), variables))

    def _hvd_once(self, pairs, is_aggregated, is_by_scaler=False):
        """Returns the (gradient, variable) pairs with reduced gradients. Those that were reduced before are
        unchanged, and so are all if is_aggregated: the caller reduces them itself.

        Raises ValueError for a mixture of both with several passes per step.
        """
        pairs = list(pairs)
        grads, variables = [g for g, _ in pairs], [v for _, v in pairs]
        done = self._hvd_computed(grads, variables, is_by_scaler or is_aggregated)
        if is_aggregated or all(done):
            return pairs
        if self._agg_helper is not None and any(d and g is not None for d, g in zip(done, grads)):
            raise ValueError(
                "apply_gradients() got gradients of compute_gradients() and others in one call, which "
                "backward_passes_per_step > 1 cannot add up; compute all in one way"
            )
        rest = self._allreduce([None if d else g for d, g in zip(done, grads)], variables)
        return [pair if d else (g, pair[1]) for d, pair, g in zip(done, pairs, rest)]

    def _hvd_for_scaler(self, pairs):
        """Returns the pairs whose gradients LossScaleOptimizer, the only caller, checks for infinities."""
        pairs = self._hvd_once(pairs, False, True)
        grads, variables = [g for g, _ in pairs], [v for _, v in pairs]
        helper = self._agg_helper
        if helper is not None:
            with tf.control_dependencies([g for g in grads if g is not None]):
                is_exchanged = tf.equal(helper.counter.read_value(), 0)
            grads = [g if g is None else tf.where(is_exchanged, g, tf.zeros_like(g)) for g in grads]
        return list(zip(agreed(self, grads, variables), variables))

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        run = self._hvd
        pairs = list(grads_and_vars)
        if run.inside:
            return self._hvd_apply(super().apply_gradients, pairs, *args, **kwargs)
        pairs = self._hvd_once(pairs, self._hvd_skips(*args, **kwargs))
        result = self._hvd_apply(super().apply_gradients, pairs, *args, **kwargs)
        after_apply(self, [v for _, v in pairs])
        return result

    def _hvd_apply(self, plain, pairs, *args, **kwargs):
        run = self._hvd
        with run.entered(), clipping(self, *([part[i] for part in pairs] for i in range(2))):
            if self._agg_helper is None:
                return plain(pairs, *args, **kwargs)

            def applied():  # returns the iterations, as the other branch of the tf.cond does
                done = plain(pairs, *args, **kwargs)
                with tf.control_dependencies([done] if isinstance(done, tf.Operation) else []):
                    return tf.identity(self.iterations)

            return self._agg_helper.apply_gradients(applied, self, pairs, *args, **kwargs)


class DistributedNew(Distributed2):
    """For subclasses of keras.optimizers.Optimizer, Keras 2.11 to 2.15."""

    @staticmethod
    def is_of(optimizer):
        return _has(optimizer, "aggregate_gradients", "compute_gradients")

    @staticmethod
    def _hvd_skips(name=None, skip_gradients_aggregation=False, **kwargs):
        return skip_gradients_aggregation or not kwargs.get("experimental_aggregate_gradients", True)

    def compute_gradients(self, loss, var_list, tape=None):
        return self._hvd_compute(super().compute_gradients, loss, var_list, tape=tape)

    def _compute_gradients(self, loss, var_list, grad_loss=None, tape=None):
        return self.compute_gradients(loss, var_list, tape)

    def aggregate_gradients(self, grads_and_vars):
        if self._hvd.inside:
            return super().aggregate_gradients(grads_and_vars)
        return super().aggregate_gradients(self._hvd_for_scaler(grads_and_vars))


class DistributedLegacy(Distributed2):
    """For subclasses of keras.optimizers.legacy.Optimizer (OptimizerV2), also in sessions."""

    @staticmethod
    def is_of(optimizer):
        return _has(optimizer, "_aggregate_gradients", "_compute_gradients")

    @staticmethod
    def _hvd_skips(name=None, experimental_aggregate_gradients=True):
        return not experimental_aggregate_gradients

    def compute_gradients(self, loss, var_list, tape=None):
        return self._compute_gradients(loss, var_list, None, tape)

    def _compute_gradients(self, loss, var_list, grad_loss=None, tape=None):
        return self._hvd_compute(super()._compute_gradients, loss, var_list, grad_loss, tape=tape)

    def get_gradients(self, loss, params):
        params = list(params)

        def pairs(loss, params):
            return zip(super(DistributedLegacy, self).get_gradients(loss, params), params)

        return [g for g, _ in self._hvd_compute(pairs, loss, params)]

    def _aggregate_gradients(self, grads_and_vars):
        if self._hvd.inside:
            return super()._aggregate_gradients(grads_and_vars)
        return super()._aggregate_gradients(self._hvd_for_scaler(grads_and_vars))


def _helper(optimizer, s):
    from _hvd.tensorflow import aggregation

    rest = {"process_set": s.process_set, "scale_local_gradients": s.scales_local}
    args = (s.passes, optimizer._hvd_allreduce, s.sparse_as_dense, s.averages_passes)
    if tf.executing_eagerly():
        return aggregation.LocalGradientAggregationHelperEager(*args, **rest)
    from _hvd import basics

    cls = aggregation.LocalGradientAggregationHelper
    return cls(*args, basics.rank(), cls._OPTIMIZER_TYPE_KERAS, **rest)


def as_compiled(optimizer):
    """Returns the optimizer in the form that compile() does not convert.

    Without TensorFlow 2's behaviour, compile() converts an optimizer of the new kind to a legacy one by the
    name of its class, and would lose what we add to the class. So it is converted here, before that.
    Raises ValueError if it cannot be converted.
    """
    if tf.__internal__.tf2.enabled() or not DistributedNew.is_of(optimizer):
        return optimizer
    try:
        return keras_of(optimizer).__internal__.optimizers.convert_to_legacy_optimizer(optimizer)
    except Exception as e:
        raise ValueError(
            "DistributedOptimizer: without TensorFlow 2's behaviour Keras takes legacy optimizers only; "
            f"{type(optimizer).__name__} cannot be made one ({e}); use one of tf.keras.optimizers.legacy"
        ) from e


def _unscale_each_pass(scaler):
    """Patches LossScaleOptimizer for several passes per step: it computes this rank's gradients of one
    pass, unscaled. They are added up and exchanged when it applies them."""
    if "_hvd_unscales" in vars(scaler):
        return
    scaler._hvd_unscales = True

    def of_one_pass(plain):
        @functools.wraps(plain)
        def compute(self, *args, **kwargs):
            inner = self.inner_optimizer
            if isinstance(self, Distributed) or not isinstance(inner, Distributed) or not inner._agg_helper:
                return plain(self, *args, **kwargs)
            with inner._hvd.entered():
                return plain(self, *args, **kwargs)

        return compute

    for name in {"compute_gradients", "_compute_gradients", "get_gradients"} & set(vars(scaler)):
        setattr(scaler, name, of_one_pass(vars(scaler)[name]))


def prepare(optimizer):
    """Patches the optimizer's Keras, once per process, and creates the helper's variables: it must not
    happen in the first trace."""
    keras = keras_of(optimizer) or tf.keras
    turn_off_xla(keras.Model)
    for scaler in keras.mixed_precision.LossScaleOptimizer.__subclasses__():  # the new and the legacy one
        _unscale_each_pass(scaler)
    for kind in (keras.optimizers.Optimizer, keras.optimizers.legacy.Optimizer):
        clip_over_all_ranks(kind)
    optimizer._agg_helper  # noqa: B018
