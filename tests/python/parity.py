# SPDX-License-Identifier: Apache-2.0
"""parity.py: prints the table "what horovod.torch has" of README.md, from the module itself."""

import horovod.torch as hvd

rows = [
    f"| `{name}` | {'no' if getattr(getattr(hvd, name), 'hvd_absent', False) else 'yes'} |"
    for name in hvd.__all__
    if not name.startswith("__")
]
have = [r for r in rows if r.endswith("| yes |")]
lack = [r for r in rows if r.endswith("| no |")]
print("| name | there |\n|---|---|")
print("\n".join(have + lack))
