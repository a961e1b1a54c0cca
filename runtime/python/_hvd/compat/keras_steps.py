# SPDX-License-Identifier: Apache-2.0
"""fit() and evaluate() of Keras 2 under ParameterServerStrategy, without steps.

There TensorFlow requires the number of steps, although it is known for arrays and most datasets: as many as
there are batches, which is what Keras takes under the other strategies. Where it is not known, or is given,
nothing changes. Keras 3 supports neither this strategy nor several workers, and its own errors come late
and name something else; here the first call has an error message.
"""

import functools
import inspect
import math


def install(tf):
    """Patches tf.keras.Model."""
    model = tf.keras.Model
    is_keras_3 = hasattr(tf.keras, "__version__")  # Keras 2 has none there
    for name in ("fit", "evaluate"):
        original = getattr(model, name)
        setattr(model, name, _refusing(tf, original) if is_keras_3 else _counting(tf, original))


def _refusing(tf, original):
    strategies = tf.distribute.ParameterServerStrategy, tf.distribute.MultiWorkerMirroredStrategy

    @functools.wraps(original)
    def call(self, *args, **kwargs):
        strategy = getattr(self, "distribute_strategy", None)
        if isinstance(strategy, strategies):
            raise RuntimeError(
                f"Keras {tf.keras.__version__} does not support {type(strategy).__name__}: pip install "
                "tf_keras, the Keras 2 of this TensorFlow, which horovod.compat.strategies then chooses"
            )
        return original(self, *args, **kwargs)

    return call


def _counting(tf, original):
    signature = inspect.signature(original)
    fill = _fill_fit if "validation_steps" in signature.parameters else _fill_evaluate

    @functools.wraps(original)
    def call(self, *args, **kwargs):
        strategy = getattr(self, "distribute_strategy", None)
        if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
            return original(self, *args, **kwargs)
        given = signature.bind(self, *args, **kwargs)
        fill(tf, given.arguments, bool(getattr(self, "_pss_evaluation_shards", 0)))
        return original(*given.args, **given.kwargs)

    return call


def _fill_fit(tf, given, has_shards):
    """has_shards: the user has asked for exact evaluation, which has no steps."""
    batch, x = given.get("batch_size"), given.get("x")
    split = given.get("validation_split") or 0
    if given.get("steps_per_epoch") is None:
        given["steps_per_epoch"] = _batches(tf, x, batch, lambda n: math.floor(n * (1 - split)))
    if has_shards or given.get("validation_steps") is not None:
        return
    batch = given.get("validation_batch_size") or batch
    held = given.get("validation_data")
    if held is not None:
        held = held[0] if isinstance(held, (tuple, list)) else held
        given["validation_steps"] = _batches(tf, held, batch)
    elif split:
        given["validation_steps"] = _batches(tf, x, batch, lambda n: n - math.floor(n * (1 - split)))


def _fill_evaluate(tf, given, has_shards):
    if not has_shards and given.get("steps") is None:
        given["steps"] = _batches(tf, given.get("x"), given.get("batch_size"))


def _batches(tf, x, batch_size, part=lambda n: n):
    """The number of batches of an array, of which a part is taken, or of a dataset; None: unknown."""
    if isinstance(x, tf.data.Dataset):
        n = int(x.cardinality())
        return n if n > 0 else None
    shape = getattr(x, "shape", None)
    return math.ceil(part(int(shape[0])) / (batch_size or 32)) if shape else None
