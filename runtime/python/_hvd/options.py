# SPDX-License-Identifier: Apache-2.0
"""Arguments that the distributed optimizers and tapes of all frameworks take, and their checks."""

import difflib
import functools
import inspect
import warnings

from _hvd.basics import Average


def named_options(function):
    """Decorator: the TypeError about an unknown keyword names the nearest of the function's, or all."""
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def call(*args, **kwargs):
        for name in kwargs.keys() - set(names):
            near = difflib.get_close_matches(name, names, 1)
            does = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(names)}"
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument '{name}'; {does}")
        return function(*args, **kwargs)

    return call


def check_predivide(factor, op):
    """gradient_predivide_factor: the average is sum(gradient / factor) * factor / ranks."""
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if not factor > 0:
        raise ValueError(f"gradient_predivide_factor must be > 0, not {factor!r}")


def renamed_groups(num_groups, groups, stacklevel):
    """Returns groups, or the value of its old name num_groups. stacklevel: that of the user's call, counted
    from the caller."""
    if num_groups == 0:
        return groups
    warnings.warn(
        "Parameter `num_groups` has been replaced by `groups` and will be removed in v0.23.0.",
        DeprecationWarning,
        stacklevel=stacklevel + 1,
    )
    return num_groups if groups is None else groups
