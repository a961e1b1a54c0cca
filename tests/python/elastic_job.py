# SPDX-License-Identifier: Apache-2.0
"""An elastic job of tests/elastic that loses ranks in the middle of an epoch; for test_elastic_*.py."""

import sys
import tempfile
from pathlib import Path

from job import DEBIAN_PYTHON, HOROVODRUN, ROOT, command

ELASTIC = ROOT / "tests/elastic"
sys.path.append(str(ELASTIC))
from check import check, summary  # noqa: E402
from record import Reader  # noqa: E402

LAUNCH = (HOROVODRUN, "-np", 3, "--min-np", 2, "-H", "localhost:3")
DEATHS = ("4:begin", "11:end")  # steps, of epochs of 6


def lose_ranks(test, script, python=DEBIAN_PYTHON, **extra):
    """Two ranks die. After the second death a new process must join, because two ranks are needed."""
    with tempfile.TemporaryDirectory() as folder:
        deaths = [word for death in DEATHS for word in ("--die", death)]
        ended = command(
            [*LAUNCH, python, ELASTIC / script, "--records", folder, *deaths], timeout=300, **extra
        )
        test.assertEqual(ended.code, 0, ended)
        for death in DEATHS:
            mark = Path(folder) / f"died-{death.partition(':')[0]}"
            test.assertTrue(mark.exists(), f"nobody died at {death}: {ended}")
        lines = Reader(folder).lines()
    test.assertEqual(check(lines), [], ended)
    job = summary(lines)
    test.assertEqual((job["epochs"], job["steps"], job["sizes"][0]), (3, 18, 3), job)
    test.assertGreaterEqual(job["worlds"], 3, job)
    test.assertGreaterEqual(job["processes"], 4, job)
