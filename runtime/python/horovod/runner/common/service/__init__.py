# SPDX-License-Identifier: Apache-2.0
"""Of Horovod's services only the one that training scripts use: ``compute_service``."""
