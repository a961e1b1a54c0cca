# SPDX-License-Identifier: Apache-2.0
"""What test_parity.py (PyTorch) and test_parity_tensorflow.py have in common."""

import functools
import os
import re
import unittest

import parity
from job import ROOT, JobTest

TABLES = ROOT / "runtime/python/PARITY.md"


@functools.lru_cache(maxsize=None)
def reports(suite, python):
    return suite.run(python)


class AllCases(JobTest):
    """Every case on two ranks is a TAP line; a subclass has the suite and the framework's name in reports."""

    suite, framework = None, None

    def test_every_symbols_cases_pass_on_2_ranks(self):
        ranks, ended = reports(self.suite, self.python)
        for name, case in ranks[0]["cases"].items():
            errors = [r["cases"].get(name, {"error": "was not reached"})["error"] for r in ranks]
            bad = "\n".join(f"rank {i}: {text}" for i, text in enumerate(errors) if text)
            version = f"{self.framework} {ranks[0][self.framework]}"
            label = f"{version}, {name}: {', '.join(case['symbols'])[:150]}"
            self.hvd_points.append((label, bad or None, None))
        self.assertEqual(ended.code, 0, ended)
        self.assertGreater(len(ranks[0]["cases"]), 50)


class Parity(unittest.TestCase):
    """A subclass has the suite, and the interpreters of the frameworks that its cases run with."""

    suite = None

    def jobs(self):
        return [reports(self.suite, python)[0] for python in self.pythons()]

    def test_names_and_signatures_are_horovods(self):
        for ranks in self.jobs():
            self.assertEqual(self.suite.differences(ranks[0]["here"]), {})

    def test_every_symbol_is_tested(self):
        untested = [row[0] for row in self.suite.rows(self.jobs()) if not row[2]]
        self.assertEqual(untested, [], f"write a case for each in {self.suite.main.parent}")

    def test_what_is_different_on_purpose_is_so(self):
        """Nobody forgets a line of DIFFERENT that has no reason any more."""
        for symbol in parity.DIFFERENT:
            module, name = symbol.rsplit(".", 1)
            if module in self.suite.wanted:
                want = self.suite.wanted[module][name]
                here = [ranks[0]["here"][module][name] for ranks in self.jobs()]
                self.assertTrue(any(parity.compare(want, one) for one in here), symbol)

    def test_the_table_is_up_to_date(self):
        table = self.suite.markdown(self.suite.rows(self.jobs())) + "\n"
        text = TABLES.read_text()
        if os.environ.get("GOLDEN_UPDATE"):
            old = re.compile(re.escape(table.splitlines()[0]) + r"\n(?:\|.*\n)*")
            TABLES.write_text(old.sub(lambda _: table, text))
            return
        self.assertIn(
            table, text, "regenerate it: GOLDEN_UPDATE=1 tests/python/run.sh parity parity_tensorflow"
        )
