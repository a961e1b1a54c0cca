# SPDX-License-Identifier: Apache-2.0
"""Keras 2 on the newest TensorFlow: from 2.16 on it is the package tf_keras."""

import importlib.util
import os

from _hvd import frameworks


def choose():
    """Before TensorFlow is imported: tf.keras is tf_keras, where that is installed and the user's
    TF_USE_LEGACY_KERAS does not say otherwise. Returns whether it is."""
    if not importlib.util.find_spec("tf_keras"):
        return False
    if os.environ.setdefault("TF_USE_LEGACY_KERAS", "1") not in ("1", "true", "True"):
        return False
    frameworks.replaced["keras"] = "tf_keras"  # as the variable does, for horovod.keras
    return True
