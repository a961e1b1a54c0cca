# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.tensorflow.aggregation``, for eager execution."""

from _hvd.tensorflow.aggregation import LocalGradientAggregationHelperEager

__all__ = ["LocalGradientAggregationHelperEager"]
