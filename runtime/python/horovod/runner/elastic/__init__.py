# SPDX-License-Identifier: Apache-2.0
"""What training scripts and tests import of Horovod's package of this name."""
