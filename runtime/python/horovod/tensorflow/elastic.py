# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.tensorflow.elastic``."""

from _hvd.basics import init, rank, shutdown
from _hvd.elastic import ObjectState, run_fn
from _hvd.exceptions import HorovodInternalError
from _hvd.tensorflow.elastic import TensorFlowKerasState, TensorFlowState, run
from _hvd.tensorflow.functions import broadcast_object, broadcast_object_fn, broadcast_variables

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]
