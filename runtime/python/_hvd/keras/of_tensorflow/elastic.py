# SPDX-License-Identifier: Apache-2.0
"""``horovod.tensorflow.keras.elastic``: state of a model, and the callbacks that keep it during fit()."""

from _hvd.elastic_keras import TensorFlowKerasState
from _hvd.keras import api
from _hvd.keras.api import ELASTIC, KerasState
from _hvd.keras.callbacks import classes
from _hvd.keras.of_tensorflow import _api, keras

_of = classes(keras)
CommitStateCallback = _of.CommitStateCallback
UpdateBatchStateCallback = _of.UpdateBatchStateCallback
UpdateEpochStateCallback = _of.UpdateEpochStateCallback
run = api.elastic_run(_api.backend)

__all__ = ["KerasState", "TensorFlowKerasState", "run", *ELASTIC]
