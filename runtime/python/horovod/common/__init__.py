# SPDX-License-Identifier: Apache-2.0
"""What all of Horovod's framework modules share; names of ``_hvd``."""
