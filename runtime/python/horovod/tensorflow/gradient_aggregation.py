# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.tensorflow.aggregation``, for graphs."""

from _hvd.tensorflow.aggregation import (
    LocalGradientAggregationHelper,
    apply_op_to_not_none_tensors,
    get_not_none_from_list,
)

__all__ = ["LocalGradientAggregationHelper", "apply_op_to_not_none_tensors", "get_not_none_from_list"]
