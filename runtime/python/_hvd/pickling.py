# SPDX-License-Identifier: Apache-2.0
"""Objects as bytes: by cloudpickle where it is installed (lambdas, local classes, what a notebook
defines), else by pickle. Either's bytes are read by pickle."""

import pickle


def cloudpickle():
    """The module, or None."""
    try:
        import cloudpickle as module
    except ImportError:
        return None
    return module


def dumps(obj):
    module = cloudpickle()
    if module is not None:
        return module.dumps(obj)
    try:
        return pickle.dumps(obj, protocol=4)
    except Exception as e:
        raise type(e)(
            f"cannot pickle this {type(obj).__name__}: {e}; "
            "install cloudpickle to send lambdas and local classes"
        ) from e
