# SPDX-License-Identifier: Apache-2.0
"""Training by compute_gradients() and then apply_gradients(), as Horovod documents it for TensorFlow.

compute_gradients() reduces gradients and marks them (tensorflow/marks.py). apply_gradients() applies marked
gradients, and those derived from them in a graph (clipped, unscaled), without another reduction. Eagerly
the origin of a gradient is unknown. If a gradient was computed for a variable and has not been applied, the
next gradient of that variable is assumed to be derived from it, and the optimizer warns once.
"""

import warnings

from _hvd.process_sets import process_set_id


class Computed:
    """Base of the distributed optimizers of Keras 2 and 3. It imports TensorFlow only where it is used."""

    def _hvd_marked(self, grads, variables):
        """Marks gradients as reduced by this optimizer; returns the list that compute_gradients()
        returns."""
        import tensorflow as tf

        from _hvd.tensorflow import marks

        known = marks.marks_of(grads)
        grads = [g if g is None or mark else tf.identity(g) for g, mark in zip(grads, known)]
        marks.mark(grads, process_set_id(self._hvd_settings.process_set), self._hvd_name())
        if tf.executing_eagerly():
            marks.remember(variables, self._hvd_name())
        self._hvd.has_computed = True
        return grads

    def _hvd_computed(self, grads, variables, is_by_scaler=False):
        """Returns a list of bool: whether compute_gradients() has reduced each gradient; None counts as
        True.

        is_by_scaler: LossScaleOptimizer is the caller, which changes gradients; there is no warning then.
        """
        run, name = self._hvd, self._hvd_name()
        if not run.has_computed:
            return [g is None for g in grads]
        import tensorflow as tf

        from _hvd.tensorflow import marks

        known = marks.marks_of(grads)
        done = [g is None or (mark is not None and mark[1] == name) for g, mark in zip(grads, known)]
        if not tf.executing_eagerly():
            return done
        waiting = [name in marks.reducers([v]) for v in variables]
        marks.remember([v for v, yes in zip(variables, waiting) if yes], None)
        is_changed = any(w and not d and not mark for w, d, mark in zip(waiting, done, known))
        if is_changed and not is_by_scaler and not run.has_warned_changed:
            run.has_warned_changed = True
            warnings.warn(
                f"horovod: {type(self).__name__}.apply_gradients() takes other gradients than "
                "compute_gradients() gave for those, clipped or scaled, and does not reduce them; compute "
                "the gradients of another loss with hvd.DistributedGradientTape",
                stacklevel=4,
            )
        return [d or w for d, w in zip(done, waiting)]
