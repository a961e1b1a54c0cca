# SPDX-License-Identifier: Apache-2.0
"""Names, versions, identity, and what is refused at import. Needs no framework but torch for names."""

import os
import re
import shutil
import tempfile
import unittest
from pathlib import Path

from job import ROOT, STAGE, command, python

README = ROOT / "runtime/python/README.md"


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
            import horovod.torch.mpi_ops, horovod.torch.optimizer, horovod.torch.compression
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

    def test_import_needs_nothing_third_party(self):
        out = self.ok("""if 1:
            import sys
            import horovod, perseus, horovod.common.exceptions, horovod.common.process_sets
            import _hvd.basics, _hvd.objects
            import horovod.runner
            for name in ("numpy", "torch", "tensorflow", "cloudpickle", "psutil", "yaml"):
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

    def test_not_initialized_has_horovods_words(self):
        ended = python("import horovod.torch as hvd; hvd.rank()")
        self.assertIn("ValueError: Horovod has not been initialized; use hvd.init().", ended.out)

    def test_init_arguments_that_are_not_there_are_refused(self):
        ended = python("import horovod.torch as hvd; hvd.init(comm=[0])")
        self.assertIn("NotImplementedError: hvd.init(comm=...)", ended.out)

    def test_build_queries_tell_the_truth(self):
        self.ok("""if 1:
            import horovod.torch as hvd
            for name in ("mpi", "gloo", "ddl", "ccl", "cuda", "rocm", "nccl"):
                assert not getattr(hvd, name + "_built")(), name
            assert hvd.mpi_enabled() is False and hvd.gloo_enabled() is False
        """)

    def test_a_contradiction_in_the_environment_is_told(self):
        place = {"RANK": 5, "SIZE": 2, "LOCAL_RANK": 0, "LOCAL_SIZE": 1, "CROSS_RANK": 0, "CROSS_SIZE": 2}
        env = {f"HOROVOD_{k}": str(v) for k, v in place.items()}
        ended = python("import _hvd.basics as hvd; hvd.init()", **env)
        self.assertEqual(ended.code, 1, ended)
        self.assertRegex(ended.out, r"HOROVOD_RANK.*5.*2")


class Signatures(unittest.TestCase):
    """Defaults and orders of arguments, from Horovod 0.28.1's signatures."""

    WANTED = {
        "allreduce": "tensor, average=None, name=None, compression=C, op=None, prescale_factor=1.0, "
        "postscale_factor=1.0, process_set=P",
        "allreduce_": "tensor, average=None, name=None, op=None, prescale_factor=1.0, "
        "postscale_factor=1.0, process_set=P",
        "allreduce_async": "tensor, average=None, name=None, op=None, prescale_factor=1.0, "
        "postscale_factor=1.0, process_set=P",
        "allreduce_async_": "tensor, average=None, name=None, op=None, prescale_factor=1.0, "
        "postscale_factor=1.0, process_set=P",
        "allgather": "tensor, name=None, process_set=P",
        "allgather_async": "tensor, name=None, process_set=P",
        "broadcast": "tensor, root_rank, name=None, process_set=P",
        "broadcast_": "tensor, root_rank, name=None, process_set=P",
        "broadcast_async": "tensor, root_rank, name=None, process_set=P",
        "broadcast_async_": "tensor, root_rank, name=None, process_set=P",
        "barrier": "process_set=P",
        "poll": "handle",
        "synchronize": "handle",
        "init": "comm=None, process_sets=None",
        "broadcast_parameters": "params, root_rank",
        "broadcast_optimizer_state": "optimizer, root_rank, model=None",
        "broadcast_object": "obj, root_rank=0, name=None, process_set=P",
        "DistributedOptimizer": "optimizer, named_parameters=None, compression=C, "
        "backward_passes_per_step=1, op=0, gradient_predivide_factor=1.0, num_groups=0, groups=None, "
        "sparse_as_dense=False, process_set=P",
    }

    def test_signatures_are_horovods(self):
        ended = python(
            """if 1:
            import inspect, sys
            import horovod.torch as hvd
            def text(f):
                out = []
                for p in inspect.signature(f).parameters.values():
                    d = p.default
                    d = "P" if d is hvd.global_process_set else "C" if d is hvd.Compression.none else d
                    out.append(p.name if d is p.empty else f"{p.name}={d}")
                return ", ".join(out)
            for name in sys.argv[1:]:
                print(name + ": " + text(getattr(hvd, name)))
        """,
            *self.WANTED,
        )
        self.assertEqual(ended.code, 0, ended)
        got = dict(line.split(": ", 1) for line in ended.out.splitlines())
        self.assertEqual(got, self.WANTED)


class Readme(unittest.TestCase):
    def test_parity_table_is_what_the_module_has(self):
        ended = command(["/usr/bin/python3", ROOT / "tests/python/parity.py"])
        self.assertEqual(ended.code, 0, ended)
        table = ended.out.strip()
        self.assertIn("| `allreduce` | yes |", table)
        self.assertIn(table, README.read_text(), "regenerate it: tests/python/parity.py")
