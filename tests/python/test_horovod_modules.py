# SPDX-License-Identifier: Apache-2.0
"""Modules that scripts and Horovod's own tests import beside the framework ones: util, env, threads, basics."""

import unittest

from job import python


class Modules(unittest.TestCase):
    def ok(self, code, **options):
        ended = python(code, **options)
        self.assertEqual(ended.code, 0, ended)
        return ended.out

    def test_extensions_are_checked_in_a_new_process(self):
        self.ok("""if 1:
            import os, sys, tempfile
            from horovod.common import util
            # a path that only this process knows, and a torch that ends the process which imports it
            sys.path.insert(0, tempfile.mkdtemp())
            os.mkdir(sys.path[0] + "/torch")
            with open(sys.path[0] + "/torch/__init__.py", "w") as f:
                f.write("import os; os._exit(7)")
            assert util.extension_available("torch") is False
            sys.path.pop(0)
            assert util.extension_available("torch") is True
            assert util.extension_available("mxnet") is False
            assert util.extension_available("torch; ok = True") is False
            assert "torch" not in sys.modules
        """)

    def test_gpu_is_what_the_framework_sees(self):
        out = self.ok("""if 1:
            from horovod.common import util
            assert util.gpu_available("torch", verbose=True) is False  # CUDA_VISIBLE_DEVICES=-1
            assert util.gpu_available("torch", verbose=True) is False
            assert util.gpu_available("mxnet") is False
        """)
        self.assertEqual(out.count("Checking whether torch sees a GPU."), 1, "asked once, then remembered")
        self.assertIn("It is NOT so that torch sees a GPU.", out)

    def test_check_extension(self):
        self.ok("""if 1:
            from horovod.common import util
            util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", "nowhere", "mpi_lib_v2")
            util.check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", "nowhere", "mpi_lib")
            try:
                util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", "nowhere", "mpi_lib")
            except ImportError as e:
                why = "it is not part of Ringmaster's horovod"
                assert str(e) == f"Extension horovod.mxnet has not been built: {why}", e
            else:
                raise AssertionError("no error")
        """)

    def test_rank_and_size_of_the_environment(self):
        self.ok(
            """if 1:
            import os
            from horovod.runner.common.util.env import get_env_rank_and_size
            def said(**env):
                for k in [k for k in os.environ if k.endswith(("RANK", "SIZE"))]:
                    del os.environ[k]
                os.environ.update(env)
                return get_env_rank_and_size()
            torchrun = {"RANK": "6", "WORLD_SIZE": "7"}
            pmi = dict(torchrun, PMI_RANK="4", PMI_SIZE="5")
            ompi = dict(pmi, OMPI_COMM_WORLD_RANK="2", OMPI_COMM_WORLD_SIZE="3")
            ours = dict(ompi, HOROVOD_RANK="0", HOROVOD_SIZE="2")
            assert [said(), said(**torchrun), said(**pmi), said(**ompi), said(**ours)] == [
                (0, 1), (6, 7), (4, 5), (2, 3), (0, 2)]
            assert said(RANK="3") == (0, 1)
            """
        )


if __name__ == "__main__":
    unittest.main()
