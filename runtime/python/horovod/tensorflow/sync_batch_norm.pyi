# SPDX-License-Identifier: Apache-2.0
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet

class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    def __init__(self, fused: bool = False, process_set: ProcessSet = ..., **kwargs: Any) -> None: ...
    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> tf.Tensor: ...
