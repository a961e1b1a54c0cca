# SPDX-License-Identifier: Apache-2.0
"""objects_relayed.py BYTES: sends objects while a relay may replace them, and prints what came of each."""

import json
import sys

from _hvd import basics, objects

THING = b"A" * int(sys.argv[1])

basics.init()
R = basics.rank()


def outcome(call):
    try:
        got = call()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return "right" if got in (THING, [THING, THING]) else repr(got)[:80]


said = {
    "broadcast": outcome(lambda: objects.broadcast_object(THING if R == 0 else None, 0, name="thing")),
    "allgather": outcome(lambda: objects.allgather_object(THING, name="things")),
    "imported": "hvd_test_evil" in sys.modules,
}
print("SAID", json.dumps(said), flush=True)
basics.shutdown()
