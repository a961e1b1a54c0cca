# SPDX-License-Identifier: Apache-2.0
from typing import Any

# Process groups and their works are made by torch.distributed, which has their types.
HvdProcessGroup: Any
HvdWork: Any

def register() -> None: ...
