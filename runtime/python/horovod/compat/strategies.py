# SPDX-License-Identifier: Apache-2.0
"""``python -m horovod.compat.strategies [-m] SCRIPT [ARGUMENT...]``: TensorFlow's own strategies."""

from _hvd.compat.strategies import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
