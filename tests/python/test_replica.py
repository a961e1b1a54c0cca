# SPDX-License-Identifier: Apache-2.0
"""The replica guard, HVD_REPLICA_CHECK, on 1 to 4 ranks."""

import re
import subprocess
import tempfile

from job import ROOT, JobTest, bare_ranks, each_torch, horovodrun, only_torch


@each_torch
class Replica(JobTest):
    @only_torch("debian")  # what one process does alone is torch's own
    def test_1(self):
        self.run_checks(1, "replica.py", HVD_REPLICA_CHECK="3")

    def test_2(self):
        self.run_checks(2, "replica.py", HVD_REPLICA_CHECK="3")

    @only_torch("debian")  # no more of torch than on 2
    def test_4(self):
        self.run_checks(4, "replica.py", HVD_REPLICA_CHECK="3")

    @only_torch("debian")
    def test_a_difference_ends_the_job(self):
        ended = horovodrun(3, "replica_programs.py", "ends", python=self.python, HVD_REPLICA_CHECK="4")
        self.assertNotEqual(ended.code, 0, ended)
        sentence = (
            r'HorovodInternalError: replica check at step 8: parameter "weight" of rank 1 \(host \S+\) differs '
            r"from ranks 0 and 2 \(element 6: [-.\d]+ there, [-.\d]+ on rank 1; 1 of 8 elements differ\)"
        )
        self.assertRegex(ended.out, sentence)
        self.assertNotIn("trained", ended.out)

    @only_torch("debian")
    def test_a_warning_comes_once_for_each_parameter(self):
        options = {"HVD_REPLICA_CHECK": "4", "HVD_REPLICA_ACTION": "warn"}
        ended = horovodrun(3, "replica_programs.py", "ends", python=self.python, **options)
        self.assertEqual(ended.code, 0, ended)
        self.assertEqual(
            len(re.findall('RuntimeWarning: replica check at step 8: parameter "weight"', ended.out)), 1
        )
        self.assertEqual(ended.out.count("Warning: replica check"), 1, ended)
        self.assertEqual(ended.out.count("the replicas are unlike"), 3, ended)

    @only_torch("debian")
    def test_an_elastic_job_goes_back_to_its_last_commit(self):
        ended = horovodrun(3, "replica_programs.py", "elastic", python=self.python, HVD_REPLICA_CHECK="4")
        self.assertEqual(ended.code, 0, ended)
        self.assertEqual(ended.out.count("the replicas are equal"), 3, ended)
        self.assertIn("replica check at step 8", ended.out)

    @only_torch("debian")
    def test_rank_0s_value_counts(self):
        """The ranks have the variable in their own environment, with different values."""
        words = "HVD_REPLICA_CHECK=$((4 - RANK * 4)) exec"
        ends = bare_ranks(
            2,
            "replica_programs.py",
            "ends",
            prefix={r: ["sh", "-c", f'{words} "$@"', "sh"] for r in (0, 1)},
        )
        for ended in ends:
            self.assertIn('parameter "weight" of ranks 0 and 1 differs', ended.out, ended)


class Replay(JobTest):
    """HVD_REPLAY, of sums over TCP, one of which a network changes that has no checksums."""

    def run_flipped(self, n=3, steps=10, **options):
        with tempfile.TemporaryDirectory() as directory:
            library = f"{directory}/flip.so"
            source = ROOT / "tests/python/flip.c"
            subprocess.run(
                ["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=120
            )
            options.update(FLIP_WHEN=f"{directory}/now", LD_PRELOAD=library, HVD_TRANSPORT="tcp")
            return horovodrun(n, "replay.py", steps, **options)

    def test_a_changed_sum_is_found(self):
        ended = self.run_flipped(HVD_REPLAY="2-10")
        self.assertNotEqual(ended.code, 0, ended)
        sentence = (
            r'the sum of tensor "\S*weight\S*" in step \d+ was repeated with the same inputs, and its results '
            r"differ on .*rank.*: element \d+ of 60000 on rank \d: [-e.\d]+, then [-e.\d]+; \d+ such elements"
        )
        self.assertRegex(ended.out, sentence)
        self.assertNotIn("trained", ended.out)
        self.assertNotIn("equal results", ended.out)

    def test_without_it_nobody_notices(self):
        ended = self.run_flipped()
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("trained", ended.out)

    def test_equal_sums_are_reported(self):
        for transport in ("tcp", "auto"):
            ended = horovodrun(3, "replay.py", 6, HVD_REPLAY="2-4", HVD_TRANSPORT=transport)
            self.assertEqual(ended.code, 0, ended)
            said = r"all repeated sums had equal results.*steps=2-4 sums=6 bytes=722400"
            self.assertEqual(len(re.findall(said, ended.out)), 1, ended)
            self.assertEqual(ended.out.count("the replicas are equal"), 3, ended)
