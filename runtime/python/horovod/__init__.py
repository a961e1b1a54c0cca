# SPDX-License-Identifier: Apache-2.0
"""Horovod's names over Ringmaster's runtime; the code is in ``_hvd``."""

from importlib import import_module

from _hvd import __version__

__all__ = ["__version__", "progress", "run"]


def __getattr__(name):
    # Training scripts import this package too, and have no use for what run() needs.
    if name == "run":
        from _hvd.run import run

        return run
    if name == "progress":
        from _hvd.progress import progress

        return progress
    if name in ("common", "runner"):  # Horovod imports them, so scripts use them as attributes
        return import_module(f"horovod.{name}")
    raise AttributeError(f"module 'horovod' has no attribute '{name}'")
