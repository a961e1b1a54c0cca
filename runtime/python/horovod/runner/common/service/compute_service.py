# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.compute_service``."""

from _hvd.compute_service import ComputeClient, ComputeService

__all__ = ["ComputeClient", "ComputeService"]
