# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.tensorflow.data.compute_service``."""

from _hvd.tensorflow.data.compute_service import (
    TfDataServiceConfig,
    compute_worker_fn,
    send_to_data_service,
    tf_data_service,
)

__all__ = ["TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service"]
