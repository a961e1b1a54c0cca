# SPDX-License-Identifier: Apache-2.0
"""``python -m horovod.compat.tf1 SCRIPT``, ``python -m horovod.compat.strategies``; not in Horovod."""
