# SPDX-License-Identifier: Apache-2.0
"""compute_gradients() and then apply_gradients(), Horovod's way to train by an optimizer of TensorFlow's.

What compute_gradients() returns is marked as reduced. apply_gradients() applies it, and gradients derived
from it (clipped, unscaled), without another reduction: see tensorflow/marks.py. Eagerly the origin of a
gradient is unknown. If a variable's gradient was computed but not applied since, the gradient is assumed to
be derived from that one, and each optimizer warns once.
"""

import warnings

from _hvd.process_sets import process_set_id


class Computed:
    """Part of the distributed optimizers of both Kerases; TensorFlow is imported where it is needed."""

    def _hvd_marked(self, grads, variables):
        """Marks the gradients that compute_gradients() returns."""
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
        """For each gradient whether compute_gradients() returned it; None counts as yes."""
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
        if is_changed and not is_by_scaler and not run.has_said_changed:
            run.has_said_changed = True
            warnings.warn(
                f"horovod: {type(self).__name__}.apply_gradients() takes other gradients than "
                "compute_gradients() gave for those, clipped or scaled, and does not reduce them; compute "
                "the gradients of another loss with hvd.DistributedGradientTape",
                stacklevel=4,
            )
        return [d or w for d, w in zip(done, waiting)]
