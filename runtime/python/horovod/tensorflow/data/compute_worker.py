# SPDX-License-Identifier: Apache-2.0
"""``python -m``: names of ``_hvd.tensorflow.data.compute_worker``."""

from _hvd.tensorflow.data.compute_worker import command_line, main

__all__ = ["main"]

if __name__ == "__main__":
    command_line()
