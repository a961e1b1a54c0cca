# SPDX-License-Identifier: Apache-2.0
"""The torch.distributed back end "hvd", with Debian's PyTorch 1.13 and with PyPI's newest."""

import os
import tempfile
import zipfile

from job import BUILD, RANKS, JobTest, bare_ranks, command, each_torch, free_port, horovodrun, only_torch


@each_torch
class Backend(JobTest):
    @only_torch("debian")
    def test_1(self):
        self.run_checks(1, "pg_collectives.py")

    # Not in the same ranks: a rank that starts its second group can still reach the first one's store.

    def test_2_collectives(self):
        self.run_checks(2, "pg_collectives.py")

    def test_2_training(self):
        self.run_checks(2, "pg_training.py")

    def test_3_beside_horovod(self):
        self.run_checks(3, "pg_beside.py")

    @only_torch("newest")  # Debian's cannot compile
    def test_2_compiled(self):
        asks = "import sys, torch._dynamo as d; sys.exit(not getattr(d, 'is_dynamo_supported', bool)())"
        if command([self.python, "-c", asks]).code:
            self.skipTest("this torch cannot compile with this Python")
        self.run_checks(2, "pg_compile.py")

    @only_torch("not newest")  # no more of torch than on 2
    def test_4(self):
        self.run_checks(4, "pg_collectives.py")

    # --- failing -------------------------------------------------------------------------------------

    def lines_of(self, what, code=0, **extra):
        """What the ranks of pg_errors.py WHAT said, without horovodrun's prefix."""
        ended = horovodrun(2, "pg_errors.py", what, python=self.python, **extra)
        self.assertEqual(ended.code, code, ended)
        return [line.split(":", 1)[1] for line in ended.out.splitlines() if "<stdout>:" in line]

    def test_a_lost_rank_is_named_in_ddp_and_after(self):
        said = self.lines_of("dies", code=7, outlived=True)
        self.assertEqual(len(said), 2, said)
        for line in said:
            self.assertRegex(line, r"^rank 0 said \w+: .*rank 1 \(host .*\) was lost")

    def test_a_late_rank_ends_the_wait_and_not_the_operation(self):
        said = self.lines_of("late")
        self.assertRegex(said[0], "all_reduce of group .* has not ended after 1 s, the timeout")
        self.assertEqual(sorted(said[1:]), ["rank 0 has 2", "rank 1 has 2"])

    @only_torch("debian")
    def test_unequal_batches_of_ddp_end_with_a_sentence(self):
        said = self.lines_of("uneven", HVD_DEADLOCK_TIMEOUT="1")
        self.assertEqual(len(said), 2, said)
        for line in said:
            self.assertRegex(
                line,
                r"^rank [01] said \w+: .*2 ranks wait only for each other: rank 0 waits for rank 1 in tensor "
                r'"torch\.\S+" \(ALLREDUCE\), rank 1 waits for rank 0 in tensor "torch\.\S+" \(BARRIER\)',
            )

    @only_torch("debian")
    def test_ranks_that_disagree_get_an_error(self):
        said = self.lines_of("detail", TORCH_DISTRIBUTED_DEBUG="DETAIL")
        self.assertEqual(len(said), 2, said)
        for line in said:
            self.assertIn("rank 0 has [2], rank 1 has [3]", line)

    @only_torch("debian")
    def test_another_world_is_refused(self):
        with tempfile.TemporaryDirectory() as directory:
            said = self.lines_of("other_world", STORE=os.path.join(directory, "store"))
        self.assertEqual(len(said), 2, said)
        self.assertIn("torch says rank 0 of 1", said[0])
        self.assertRegex(said[0], "the runtime is rank [01] of 2: .*launcher")

    def test_the_timeout_is_that_of_the_start(self):
        place = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        with tempfile.TemporaryDirectory() as directory:
            store = os.path.join(directory, "store")
            ended = command([self.python, RANKS / "pg_errors.py", "alone"], STORE=store, **place)
        said = [line for line in ended.out.splitlines() if line.startswith("said ")]
        self.assertEqual(len(said), 2, ended)
        for line in said:
            self.assertRegex(
                line, r"waited 1\.\d+ s for rank 1 of 2 \(the start timeout .* is 1\.5 s: raise it"
            )

    # --- starting ------------------------------------------------------------------------------------

    def check_works(self, *ends):
        out = "".join(end.out for end in ends)
        self.assertEqual([end.code for end in ends], [0] * len(ends), out)
        for rank in range(2):
            self.assertIn(f"rank {rank} of 2 has 2", out)

    @only_torch("debian")
    def test_under_mpirun(self):
        script = RANKS / "pg_errors.py"
        self.check_works(command(["mpirun", "-np", 2, self.python, script, "works"]))

    @only_torch("debian")
    def test_alone(self):
        ended = command([self.python, RANKS / "pg_errors.py", "works"])
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("rank 0 of 1 has 1", ended.out)

    @only_torch("newest")  # Debian's torchrun does not work with its Python
    def test_under_torchrun(self):
        run = [self.python, "-m", "torch.distributed.run", "--nproc_per_node", 2]
        run += ["--master_port", free_port()]
        self.check_works(command([*run, RANKS / "pg_errors.py", "works"]))

    @only_torch("debian")
    def test_by_hand(self):
        self.check_works(*bare_ranks(2, "pg_errors.py", "works", python=self.python))

    @only_torch("newest")
    def test_the_wheel_makes_the_name_known(self):
        asks = "import sys, torch; sys.exit(not hasattr(torch, '_import_device_backends'))"
        if command([self.python, "-c", asks]).code:
            self.skipTest("entry points of back ends came with torch 2.5")
        (wheel,) = BUILD.glob("ringmaster_horovod-*.whl")
        with tempfile.TemporaryDirectory() as directory:
            zipfile.ZipFile(wheel).extractall(directory)
            words = ("pg_errors.py", "works", "no-import")
            self.check_works(*bare_ranks(2, *words, python=self.python, PYTHONPATH=directory))
            mpirun = ["mpirun", "-np", 2, self.python, RANKS / words[0], *words[1:]]
            self.check_works(command(mpirun, PYTHONPATH=directory))
            other = "import torch.distributed as d; d.init_process_group('gloo')"
            alone = command([self.python, "-c", other], PYTHONPATH=directory)
            self.assertIn("environment variable RANK expected", alone.out)
