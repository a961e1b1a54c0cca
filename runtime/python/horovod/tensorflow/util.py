# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.tensorflow.util``."""

from _hvd.tensorflow.util import (
    _cache,
    _executing_eagerly,
    _make_subgraph,
    refs_to_vars,
    vars_to_refs,
)

__all__ = ["refs_to_vars", "vars_to_refs"]
