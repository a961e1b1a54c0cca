# SPDX-License-Identifier: Apache-2.0
from typing import Sequence

def main(arguments: Sequence[str] | None = None) -> None: ...
