# SPDX-License-Identifier: Apache-2.0
"""``python -m horovod.compat.tf1 SCRIPT``; not in Horovod."""
