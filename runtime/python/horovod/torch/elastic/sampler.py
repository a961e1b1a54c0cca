# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.torch.elastic.sampler``."""

from _hvd.torch.elastic.sampler import ElasticSampler

__all__ = ["ElasticSampler"]
