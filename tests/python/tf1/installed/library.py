# SPDX-License-Identifier: Apache-2.0
"""A library that pip has installed in a folder of its own: it sees TensorFlow as it is."""

import tensorflow as tf


def when_called():
    import tensorflow

    return tensorflow


__all__ = ["tf", "when_called"]
