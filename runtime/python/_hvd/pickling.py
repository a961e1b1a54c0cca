# SPDX-License-Identifier: Apache-2.0
"""Objects as bytes that pickle reads. What pickle cannot write (lambdas, local classes, what a
notebook defines) is left to cloudpickle, where that is installed."""

import pickle


def cloudpickle():
    """The module, or None."""
    try:
        import cloudpickle as module
    except ImportError:
        return None
    return module


def dumps(obj):
    """For a process that runs the same program: its classes are the reader's own."""
    try:
        return pickle.dumps(obj, protocol=4)
    except Exception as e:
        module = cloudpickle()
        if module is not None:
            return module.dumps(obj)
        raise type(e)(
            f"cannot pickle this {type(obj).__name__}: {e}; "
            "install cloudpickle to send lambdas and local classes"
        ) from e


def dumps_whole(obj):
    """For a process that runs another program: includes what this script defines."""
    module = cloudpickle()
    return module.dumps(obj) if module is not None else dumps(obj)
