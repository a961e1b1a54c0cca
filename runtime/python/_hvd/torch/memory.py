# SPDX-License-Identifier: Apache-2.0
"""Cheap host memory: huge pages for tensors of 2 MiB and more.

malloc returns blocks above 32 MiB to the kernel when they are freed, and a gradient is freed and recreated
in every step: 75 MB cost 18,433 page faults of 4 KiB, more time than the allreduce. torch can request huge
pages instead. It reads its variable when it creates its first tensor, so setting it at the import of this
package is early enough.
"""

import os

VARIABLE = "THP_MEM_ALLOC_ENABLE"


def use_huge_pages():
    """Sets the variable unless the user has set it. Versions of torch without it ignore it."""
    os.environ.setdefault(VARIABLE, "1")
