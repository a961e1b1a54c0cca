# SPDX-License-Identifier: Apache-2.0
"""``python -m horovod.compat.tf1 [-m] SCRIPT [ARGUMENT...]``: runs a program for TensorFlow 1."""

from _hvd.compat.tf1 import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
