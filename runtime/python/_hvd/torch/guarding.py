# SPDX-License-Identifier: Apache-2.0
"""``hvd.guard()``: snapshots of a PyTorch training in the memory of its hosts."""

from _hvd.guard import Guard


def guard(model, optimizer=None, every=100, name="default", **objects):
    """Keeps snapshots of model, optimizer and other objects in the memory of each host; a Guard.

    In a job of ``horovodrun --min-np`` they outlive the processes. For scripts whose ranks have equal
    replicas and that do not use hvd.elastic.run.

    every: steps between two snapshots. name: another one for a second guard in the script. objects: what
    else has state_dict() and load_state_dict(), such as a scheduler.

    restore() on all ranks before the first step loads the newest snapshot that a host has, and returns
    the number of its step, or 0. step() after each step counts it, and makes the snapshots.
    """
    of = {"model": model, **objects}
    if optimizer is not None:
        of["optimizer"] = optimizer
    return Guard(of, every, name)
