# SPDX-License-Identifier: Apache-2.0
"""Arguments that the distributed optimizers and tapes of all frameworks take, and their checks."""

import warnings

from _hvd.basics import Average


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
