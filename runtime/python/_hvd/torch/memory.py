# SPDX-License-Identifier: Apache-2.0
"""Host memory that is cheap to get: huge pages for tensors of 2 MiB and more.

malloc gives back what is larger than 32 MiB as soon as it is freed, and a gradient is freed and made
anew in every step: of 75 MB that is 18,433 page faults of 4 KiB, more time than its allreduce takes.
torch can ask the kernel for huge pages instead. It looks at its own variable when it makes its first
tensor, so importing this package is early enough.
"""

import os

VARIABLE = "THP_MEM_ALLOC_ENABLE"


def ask_for_huge_pages():
    """What the user has set stays. Versions of torch that do not know the variable pass over it."""
    os.environ.setdefault(VARIABLE, "1")
