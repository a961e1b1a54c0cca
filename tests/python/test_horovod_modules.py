# SPDX-License-Identifier: Apache-2.0
"""Modules that scripts and Horovod's own tests import beside the framework ones: util, env, threads, basics."""

import unittest

from job import python


class Modules(unittest.TestCase):
    def ok(self, code, **options):
        ended = python(code, **options)
        self.assertEqual(ended.code, 0, ended)
        return ended.out

    def test_they_need_nothing_third_party(self):
        self.ok("""if 1:
            import sys
            import horovod.common.util, horovod.common.basics
            import horovod.runner.common.util.env, horovod.runner.util.threads
            for name in ("numpy", "torch", "tensorflow", "cloudpickle", "packaging", "psutil", "yaml"):
                assert name not in sys.modules, name
        """)

    def test_extensions_are_asked_for_in_a_new_process(self):
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
            suffix = util.get_ext_suffix()
            assert suffix.endswith(".so"), suffix
            assert util.get_extension_full_path("/a/b.py", "lib", "x") == "/a/lib/x" + suffix
        """)

    def test_env_sets_and_restores(self):
        self.ok("""if 1:
            import os
            from horovod.common.util import env
            os.environ["HAD"] = "old"
            os.environ.pop("HAD_NOT", None)
            try:
                with env(HAD="new", HAD_NOT="1", STAYS=None):
                    assert (os.environ["HAD"], os.environ["HAD_NOT"]) == ("new", "1")
                    assert "STAYS" not in os.environ
                    del os.environ["HAD_NOT"]
                    raise KeyError
            except KeyError:
                pass
            assert os.environ["HAD"] == "old" and "HAD_NOT" not in os.environ
        """)

    def test_small_helpers(self):
        self.ok("""if 1:
            import types, warnings
            from horovod.common import util
            assert [n for n in range(-1, 9) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8]
            assert util.split_list(list(range(7)), 3) == [[0, 1, 2], [3, 4], [5, 6]]
            assert util.split_list([1], 3) == [[1], [], []]
            assert util.is_iterable(range(2)) and util.is_iterable("") and not util.is_iterable(3)
            assert util.check_installed_version("pytorch", "0.0.1") is None
            calls = []
            f = util._cache(lambda *a, **k: calls.append((a, k)) or len(calls))
            assert (f(1), f(1), f(1, x=2), f(1, x=2), f()) == (1, 1, 2, 2, 3) and len(calls) == 3
            at_least = util.is_version_greater_equal_than
            assert at_least("2.10.0", "2.9.0") and not at_least("1.13.0a0", "1.13.0")
            for bad in (("2.10", "2.9"), (2, "2.9.0")):
                try:
                    at_least(*bad)
                except ValueError:
                    continue
                raise AssertionError(bad)
            ops = types.SimpleNamespace(Average=0, Sum=1)
            choose = util.get_average_backwards_compatibility_fun(ops)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                assert (choose(None, None), choose(5, None), choose(None, False), choose(None, True)) == (0, 5, 1, 0)
            assert [w.category for w in told] == [DeprecationWarning] * 2
            try:
                choose(1, True)
            except ValueError as e:
                assert "supersedes average" in str(e)
            else:
                raise AssertionError("no error")
        """)

    def test_rank_and_size_of_the_environment(self):
        self.ok(
            """if 1:
            import os
            from horovod.runner.common.util.env import get_env_rank_and_size, is_exportable, is_kubeflow_mpi
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
            try:
                said(PMI_SIZE="2")
            except RuntimeError as e:
                assert "only one of PMI_RANK and PMI_SIZE" in str(e)
            else:
                raise AssertionError("no error")
            assert is_exportable("PATH") and not is_exportable("OLDPWD")
            assert not is_exportable("_HOROVOD_SECRET_KEY") and not is_exportable("X_CUDA_VISIBLE_DEVICES")
            assert not is_kubeflow_mpi()
            os.environ["OMPI_MCA_plm_rsh_agent"] = "/etc/mpi/kubexec.sh"
            assert is_kubeflow_mpi()
            """
        )

    def test_threads(self):
        self.ok("""if 1:
            import threading
            from horovod.runner.util.threads import execute_function_multithreaded, in_thread, on_event
            got = []
            thread = in_thread(got.append, (1,), name="mine", silent=True)
            thread.join(60)
            in_thread(lambda: 1 / 0, silent=True).join(60)
            assert got == [1] and thread.daemon and thread.name == "mine"
            for call in (lambda: in_thread(got.append, 1), lambda: on_event(threading.Event(), got.append, 1),
                         lambda: on_event(None, got.append), lambda: on_event(threading.Event(), print, daemon=False)):
                try:
                    call()
                except ValueError:
                    continue
                raise AssertionError("no error")
            event, stop = threading.Event(), threading.Event()
            waiting = [on_event(event, got.append, (2,)), on_event(event, got.append, (3,), stop, 0.01)]
            event.set()
            for thread in waiting:
                thread.join(60)
            assert sorted(got) == [1, 2, 3], got
            stopped = on_event(threading.Event(), got.append, (4,), stop, 0.01)
            stop.set()
            stopped.join(60)
            assert not stopped.is_alive() and 4 not in got
            args = [[n, 2] for n in range(9)]
            assert execute_function_multithreaded(pow, args, max_concurrent_executions=3) == {
                n: n * n for n in range(9)}
            assert args[8] == [8, 2] and execute_function_multithreaded(pow, []) == {}
            assert execute_function_multithreaded(pow, args, block_until_all_done=False) is None
            threading.excepthook = lambda args: None
            try:
                execute_function_multithreaded(divmod, [[1, 0]])
            except RuntimeError as e:
                assert "func divmod" in str(e)
            else:
                raise AssertionError("no error")
        """)

    def test_basics_object(self):
        self.ok("""if 1:
            import horovod.torch as hvd
            from horovod.common.basics import HorovodBasics
            basics = HorovodBasics("here", "mpi_lib_v2")
            assert (basics.Average, basics.Sum, basics.Adasum, basics.Min, basics.Max, basics.Product) == (
                hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product)
            assert basics.init is hvd.init and basics.rank is hvd.rank
            basics.init()
            assert basics.is_initialized() and basics.size() == 1 and hvd.is_initialized()
            basics.shutdown()
            assert not hvd.is_initialized()
        """)


if __name__ == "__main__":
    unittest.main()
