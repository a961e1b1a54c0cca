# SPDX-License-Identifier: Apache-2.0
"""``horovod.tensorflow.data``: helpers for tf.data service."""
