# SPDX-License-Identifier: Apache-2.0
"""``horovod.tensorflow.keras.callbacks``: the callbacks over this Keras' Callback."""

from _hvd.keras.api import CALLBACKS
from _hvd.keras.callbacks import classes
from _hvd.keras.of_tensorflow import keras

_of = classes(keras)
BroadcastGlobalVariablesCallback = _of.BroadcastGlobalVariablesCallback
MetricAverageCallback = _of.MetricAverageCallback
LearningRateScheduleCallback = _of.LearningRateScheduleCallback
LearningRateWarmupCallback = _of.LearningRateWarmupCallback
ProgressCallback = _of.ProgressCallback
BestModelCheckpoint = _of.BestModelCheckpoint

__all__ = ["BestModelCheckpoint", *CALLBACKS]
