# SPDX-License-Identifier: Apache-2.0
"""Small functions of horovod.common.util and horovod.runner that users' scripts and tests import."""

import os
import sysconfig
import threading

import torch
from harness import OURS, RANK, hvd, symbol
from horovod.common import util
from horovod.runner.common.util import env
from horovod.runner.util import threads

U = "horovod.common.util."
LAUNCHERS = ("HOROVOD_", "OMPI_COMM", "PMI", "RANK", "WORLD_SIZE", "SLURM_")
ENV = "horovod.runner.common.util.env."
THREADS = "horovod.runner.util.threads."


@symbol(U + "EXTENSIONS", U + "get_ext_suffix", U + "get_extension_full_path", U + "check_extension")
def extensions(t):
    t.same("extensions", util.EXTENSIONS)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert util.get_ext_suffix() == suffix
    path = util.get_extension_full_path("/some/package/__init__.py", "sub", "lib")
    assert path == f"/some/package/sub/lib{suffix}"
    t.fails(
        "absent",
        ["has not been built"],
        util.check_extension,
        "horovod.no",
        "HOROVOD_WITH_NO",
        __file__,
        "no",
    )


@symbol(U + "extension_available", U + "gpu_available")
def extension_available(t):
    """Asked in a process of its own, so that one rank is enough."""
    if RANK == 0:
        t.same("torch", util.extension_available("torch"))
    t.same("no extension", util.extension_available("nosuch", verbose=False))
    t.same("no extension's gpu", util.gpu_available("nosuch"))


BUILT = ("mpi_built", "gloo_built", "nccl_built", "ddl_built", "ccl_built")


@symbol(*(U + name for name in BUILT))
def built(t):
    for name in BUILT:
        answer = getattr(util, name)(verbose=False)
        assert answer == getattr(hvd, name)(), name
        t.same(name, type(answer).__name__)


@symbol(U + "_cache")
def cache(t):
    calls = []

    @util._cache
    def double(x, y=0):
        calls.append((x, y))
        return 2 * x + y

    t.same("results", [double(1), double(1), double(1, y=2), double(2)])
    t.same("calls", calls)


@symbol(U + "env")
def environment(t):
    os.environ["HVD_TEST_A"] = "1"
    os.environ.pop("HVD_TEST_B", None)
    with util.env(HVD_TEST_A="2", HVD_TEST_B="3", HVD_TEST_C=None):
        t.same("inside", [os.environ.get(f"HVD_TEST_{x}") for x in "ABC"])
    t.same("after", [os.environ.get(f"HVD_TEST_{x}") for x in "ABC"])
    try:
        with util.env(HVD_TEST_A="2"):
            raise KeyError
    except KeyError:
        t.same("after an exception", os.environ["HVD_TEST_A"])


@symbol(
    U + "get_average_backwards_compatibility_fun",
    "horovod.torch.mpi_ops.handle_average_backwards_compatibility",
)
def average_argument(t):
    function = util.get_average_backwards_compatibility_fun(hvd)
    for f, name in ((function, "made"), (hvd.mpi_ops.handle_average_backwards_compatibility, "module's")):
        t.same(name, [f(None, None), f(hvd.Max, None)])
        t.same(f"{name} false", t.warns(f"{name} warning", f, None, False))
        t.same(f"{name} true", t.warns(f"{name} warning of true", f, None, True))
        t.fails(f"{name} both", ["supersedes average"], f, hvd.Sum, True)


@symbol(U + "num_rank_is_power_2", U + "split_list", U + "is_iterable")
def arithmetic(t):
    t.same("power", [util.num_rank_is_power_2(n) for n in range(10)])
    t.same("split", [util.split_list(list(range(n)), 3) for n in range(8)])
    t.same("iterable", [util.is_iterable(x) for x in ([], "", 5, None, iter([]), {})])


@symbol(U + "is_version_greater_equal_than")
def versions(t):
    t.needs("packaging")
    pairs = (
        ("1.2.3", "1.2.3"),
        ("1.10.0", "1.9.9"),
        ("2.0", "2.0.1"),
        ("1.0.0rc1", "1.0.0"),
        ("2.1.0+cu118", "2.1.0"),
    )
    t.same("pairs", [util.is_version_greater_equal_than(a, b) for a, b in pairs])
    t.fails("numbers", ["only accepts string arguments"], util.is_version_greater_equal_than, 1, "1.0.0")
    t.fails("short", ["major.minor.patch"], util.is_version_greater_equal_than, "1.0.0", "1.0")


@symbol(U + "check_installed_version")
def installed_version(t):
    """One build serves all versions here, so there is nothing to warn of."""
    if OURS:
        util.check_installed_version("torch", torch.__version__)


@symbol(ENV + "get_env_rank_and_size")
def env_rank_and_size(t):
    with util.env(HOROVOD_RANK="1", HOROVOD_SIZE="3"):
        t.same("horovod", env.get_env_rank_and_size())
    kept = {k: os.environ.pop(k) for k in list(os.environ) if k.startswith(LAUNCHERS)}
    try:
        t.same("nothing", env.get_env_rank_and_size())
        with util.env(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="4"):
            t.same("mpi", env.get_env_rank_and_size())
        with util.env(PMI_RANK="2", PMI_SIZE="4"):
            t.same("pmi", env.get_env_rank_and_size())
        with util.env(HOROVOD_RANK="1"):
            t.fails("half", ["only one of HOROVOD_RANK and HOROVOD_SIZE"], env.get_env_rank_and_size)
    finally:
        os.environ.update(kept)


@symbol(
    ENV + "is_exportable",
    ENV + "is_kubeflow_mpi",
    ENV + "LOG_LEVEL_STR",
    ENV + "IGNORE_REGEXES",
    ENV + "KUBEFLOW_MPI_EXEC",
)
def exportable(t):
    names = (
        "PATH",
        "OLDPWD",
        "BASH_FUNC_x%%",
        "CUDA_VISIBLE_DEVICES",
        "_HOROVOD_SECRET_KEY",
        "HOROVOD_RANK",
    )
    t.same("names", [env.is_exportable(n) for n in names])
    t.same("levels", env.LOG_LEVEL_STR)
    t.same("regexes", set(env.IGNORE_REGEXES))
    with util.env(OMPI_MCA_plm_rsh_agent=env.KUBEFLOW_MPI_EXEC):
        t.same("kubeflow", env.is_kubeflow_mpi())
    t.same("no kubeflow", env.is_kubeflow_mpi())


@symbol(THREADS + "in_thread", THREADS + "on_event", THREADS + "execute_function_multithreaded")
def background(t):
    said = []
    thread = threads.in_thread(said.append, args=(1,), name="named")
    thread.join(60)
    t.same("in_thread", [said, thread.daemon, thread.name])
    t.fails("args", ["args must be a tuple"], threads.in_thread, said.append, args=[1])

    def fails():
        raise KeyError

    silent = threads.in_thread(fails, silent=True, daemon=False)
    silent.join(60)
    t.same("silent", [silent.is_alive(), silent.daemon])
    event, stop = threading.Event(), threading.Event()
    waits = threads.on_event(event, said.append, args=(2,))
    event.set()
    waits.join(60)
    stopped = threads.on_event(
        threading.Event(), said.append, args=(3,), stop=stop, check_stop_interval_s=0.01, daemon=False
    )
    stop.set()
    stopped.join(60)
    t.same("on_event", said)
    t.fails("no event", ["Event must not be None"], threads.on_event, None, said.append)
    t.fails("no stop", ["Stop event must be given"], threads.on_event, event, said.append, daemon=False)
    t.fails("no tuple", ["args must be a tuple"], threads.on_event, event, said.append, args=[1])
    results = threads.execute_function_multithreaded(
        lambda a, b: a + b, [[1, 2], [3, 4], [5, 6]], max_concurrent_executions=2
    )
    t.same("results", sorted(results.items()))
    t.same(
        "no wait", threads.execute_function_multithreaded(said.append, [[9]], block_until_all_done=False)
    )
