# SPDX-License-Identifier: Apache-2.0
"""A module of a package of the program."""

import tensorflow as tf

tf.Session  # noqa: B018
