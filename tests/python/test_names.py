# SPDX-License-Identifier: Apache-2.0
"""Names, versions, identity, and what is refused at import. Needs no framework but torch for names."""

import os
import re
import shutil
import tempfile
import unittest
from pathlib import Path

from job import DEBIAN_PYTHON, HOROVODRUN, ROOT, STAGE, command, python


class Names(unittest.TestCase):
    def ok(self, code, *args, **options):
        ended = python(code, *args, **options)
        self.assertEqual(ended.code, 0, ended)
        return ended.out

    def test_version_is_horovods_and_ours(self):
        version = re.search(r"^VERSION := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
        out = self.ok("import horovod, perseus; print(horovod.__version__, perseus.__version__)")
        self.assertEqual(out.split(), [f"0.28.1+ringmaster.{version}"] * 2)

    def test_every_name_is_one_object(self):
        self.ok("""if 1:
            import horovod.torch as a, perseus.torch.horovod as b, _hvd.torch as c
            import horovod  # its torch, imported above, has the modules of Horovod as attributes
            from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
            from horovod.common.process_sets import global_process_set
            for name in c.__all__:
                assert getattr(a, name) is getattr(c, name) is getattr(b, name), name
            assert a.HorovodInternalError is HorovodInternalError
            assert a.global_process_set is global_process_set
            assert horovod.torch.mpi_ops.allreduce is a.allreduce
            assert horovod.torch.mpi_ops.rank is a.rank
            assert horovod.torch.optimizer.DistributedOptimizer is a.DistributedOptimizer
            assert issubclass(HorovodInternalError, RuntimeError)
        """)

    def test_modules_are_attributes_without_their_own_import(self):
        # What Horovod's own imports leave behind, each in a fresh process: an import is there to stay.
        self.ok("""if 1:
            import horovod.torch as hvd
            assert hvd.sync_batch_norm.SyncBatchNorm is hvd.SyncBatchNorm
            assert hvd.elastic.state.TorchState is hvd.elastic.TorchState
            assert hvd.elastic.sampler.ElasticSampler is hvd.elastic.ElasticSampler
        """)
        self.ok("""if 1:
            import horovod
            import horovod.torch
            assert horovod.common.exceptions.HorovodInternalError is horovod.torch.HorovodInternalError
            assert horovod.common.process_sets.ProcessSet is horovod.torch.ProcessSet
            assert horovod.common.util.is_iterable([])
            assert horovod.common.basics.HorovodBasics and horovod.common.elastic.ObjectState
        """)
        self.ok("import horovod; assert horovod.runner.run is horovod.run; assert horovod.common")

    def test_import_needs_nothing_third_party(self):
        out = self.ok("""if 1:
            import sys
            import horovod, perseus, horovod.common.exceptions, horovod.common.process_sets
            import _hvd.basics, _hvd.objects
            import horovod.common.util, horovod.common.basics
            import horovod.runner, horovod.runner.common.util.env, horovod.runner.util.threads
            for name in ("numpy", "torch", "tensorflow", "cloudpickle", "packaging", "psutil", "yaml"):
                assert name not in sys.modules, name
                sys.modules[name] = None
            _hvd.basics.init()
            assert _hvd.objects.broadcast_object({"a": [1]}) == {"a": [1]}
            assert _hvd.objects.allgather_object(2) == [2]
            print(_hvd._native.version(), _hvd._native.describe())
        """)
        self.assertRegex(out, r'^\d+\.\d+\.\d+ \{.*"size": ?1')

    def test_objects_that_need_cloudpickle_say_so(self):
        ended = python("""if 1:
            import sys
            sys.modules["cloudpickle"] = None
            import _hvd.basics, _hvd.objects
            _hvd.basics.init()
            _hvd.objects.broadcast_object(lambda: 1)
        """)
        self.assertNotEqual(ended.code, 0)
        self.assertIn("install cloudpickle", ended.out)

    def test_real_horovod_in_the_same_directory_is_refused(self):
        with tempfile.TemporaryDirectory() as directory:
            site = Path(directory) / "site"
            shutil.copytree(STAGE / "python", site)
            (site / "horovod-0.28.1.dist-info").mkdir()
            for module in ("horovod", "perseus.torch.horovod", "_hvd.basics"):
                ended = python(f"import {module}", PYTHONPATH=str(site))
                self.assertEqual(ended.code, 1, ended)
                self.assertIn("ImportError: Ringmaster's horovod and the package horovod 0.28.1", ended.out)
                self.assertIn("pip uninstall -y horovod ringmaster-horovod", ended.out)

    def test_real_horovod_elsewhere_on_the_path_is_not_in_the_way(self):
        with tempfile.TemporaryDirectory() as directory:
            package = Path(directory) / "horovod"
            package.mkdir()
            (package / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
            (Path(directory) / "horovod-0.28.1.dist-info").mkdir()
            path = f"{STAGE / 'python'}{os.pathsep}{directory}"
            self.ok("import horovod.common.exceptions", PYTHONPATH=path)

    def test_comm_of_mpi4py_or_nonsense_gets_a_sentence(self):
        code = """if 1:
            import horovod.torch as hvd
            class Comm: pass
            Comm.__module__ = "mpi4py.MPI"
            for comm in (Comm(), 3, ["a"], [True]):
                try:
                    hvd.init(comm=comm)
                except ValueError as e:
                    print(e)
        """
        lines = python(code).out.splitlines()
        self.assertEqual(len(lines), 4, lines)
        for line in lines:
            self.assertIn("Invalid type of argument comm. Expected list of rank integers", line)

    def test_build_queries_before_init(self):
        self.ok("""if 1:
            import horovod.torch as hvd
            for name in ("ddl", "ccl", "cuda", "rocm", "nccl"):
                assert not getattr(hvd, name + "_built")(), name
            assert hvd.mpi_built() is True and hvd.gloo_built() is True
            assert hvd.mpi_enabled() is False and hvd.gloo_enabled() is False
            try:
                hvd.mpi_threads_supported()
            except ValueError as e:
                assert "MPI is not enabled" in str(e), e
            else:
                raise AssertionError("no error")
        """)

    def test_build_queries_depend_on_the_launcher(self):
        code = """if 1:
            import sys
            import _hvd.basics as hvd
            hvd.init()
            threads = hvd.mpi_enabled() and hvd.mpi_threads_supported()
            sys.stdout.write(f"said {hvd.mpi_enabled()} {hvd.gloo_enabled()} {threads}\\n")  # in one piece
        """
        alone = [DEBIAN_PYTHON, "-c", code]
        mpirun = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-np", "2"]
        for launcher, wanted in (
            ([], "said False True False"),
            ([HOROVODRUN, "-np", "2"], "said False True False"),
            (mpirun, "said True False True"),
            (["mpiexec.mpich", "-n", "2"], "said True False True"),
        ):
            ended = command([*launcher, *alone])
            self.assertEqual(ended.code, 0, ended)
            self.assertEqual(ended.out.count(wanted), 2 if launcher else 1, ended)

    def test_a_contradiction_in_the_environment_is_an_error(self):
        place = {"RANK": 5, "SIZE": 2, "LOCAL_RANK": 0, "LOCAL_SIZE": 1, "CROSS_RANK": 0, "CROSS_SIZE": 2}
        env = {f"HOROVOD_{k}": str(v) for k, v in place.items()}
        ended = python("import _hvd.basics as hvd; hvd.init()", **env)
        self.assertEqual(ended.code, 1, ended)
        self.assertRegex(ended.out, r"HOROVOD_RANK.*5.*2")
