# SPDX-License-Identifier: Apache-2.0
"""Life, place, build queries, constants, the timeline. The first file: it calls init()."""

import os
import tempfile

import horovod
import horovod.common.basics
from harness import hvd, symbol


@symbol("horovod.__version__")
def version(t):
    t.same("release", horovod.__version__.split("+")[0])


PLACE = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")


@symbol(*PLACE, "is_initialized")
def before_init(t):
    t.same("initialized", hvd.is_initialized())
    for name in PLACE:
        t.fails(name, ["Horovod has not been initialized; use hvd.init()."], getattr(hvd, name))


@symbol("start_timeline", "stop_timeline")
def timeline_before_init(t):
    t.fails("start", ["Horovod has not been initialized"], hvd.start_timeline, "/nonexistent")
    t.fails("stop", ["Horovod has not been initialized"], hvd.stop_timeline)


@symbol("init", "is_initialized")
def init(t):
    t.same("returns", hvd.init())
    t.same("initialized", hvd.is_initialized())
    t.same("again", hvd.init())


@symbol(*PLACE, "horovod.torch.mpi_ops.is_homogeneous")
def place(t):
    for name in PLACE:
        t.same(name, getattr(hvd, name)())
    t.same("homogeneous", hvd.mpi_ops.is_homogeneous())


OPS = ("Average", "Sum", "Adasum", "Min", "Max", "Product")


@symbol(*OPS)
def constants(t):
    for name in OPS:
        t.same(name, getattr(hvd, name))


BUILT = ("mpi_built", "gloo_built", "ddl_built", "ccl_built", "cuda_built", "rocm_built")


@symbol(*BUILT, "nccl_built", "mpi_enabled", "gloo_enabled")
def build_queries(t):
    """Their types: what is built in differs on purpose."""
    for name in (*BUILT, "mpi_enabled", "gloo_enabled"):
        t.same(name, type(getattr(hvd, name)()).__name__)
    t.same("nccl_built", hvd.nccl_built())


@symbol("mpi_threads_supported")
def mpi_threads_supported(t):
    """True or False under mpirun; without MPI the original's sentence."""
    if hvd.mpi_enabled():
        assert isinstance(hvd.mpi_threads_supported(), bool)
        return
    try:
        hvd.mpi_threads_supported()
    except ValueError as e:
        assert "MPI is not enabled" in str(e), e
    else:
        raise AssertionError("there is no MPI in this job")


@symbol("progress", ours=True)
def progress(t):
    """What becomes of it: ranks/progress.py."""
    assert hvd.progress(step=1, total=10, epoch=1, epochs=2, samples=32, metrics={"loss": 0.5}) is None


@symbol("horovod.common.basics.HorovodBasics")
def basics(t):
    """The class behind rank(), size() and so on, which some scripts instantiate themselves."""
    mine = horovod.common.basics.HorovodBasics(horovod.torch.mpi_ops.__file__, "mpi_lib_v2")
    t.same("constants", [getattr(mine, name) for name in OPS])
    t.same("place", [mine.is_initialized(), mine.rank(), mine.size(), mine.local_rank(), mine.cross_size()])
    t.same("built", [type(getattr(mine, name)()).__name__ for name in BUILT])


@symbol("start_timeline", "stop_timeline")
def timeline(t):
    """What is in it: test_timeline.py."""
    path = os.path.join(tempfile.mkdtemp(), "timeline.json")
    t.same("start", hvd.start_timeline(path, mark_cycles=False))
    t.same("stop", hvd.stop_timeline())
    assert os.path.exists(path) == (hvd.rank() == 0)
