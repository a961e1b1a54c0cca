# SPDX-License-Identifier: Apache-2.0
"""Small helpers that scripts, and Horovod's own modules and tests, import from ``horovod.common.util``.

The checks whether a framework exists run in a new interpreter with this one's ``sys.path``: an import here
would cost seconds and memory and could end the process.
"""

import contextlib
import functools
import os
import re
import subprocess
import sys
import sysconfig

from _hvd import basics

EXTENSIONS = ["tensorflow", "torch", "mxnet"]

_HAS_GPU = {
    "torch": "import torch; ok = torch.cuda.is_available()",
    "tensorflow": "import tensorflow as tf; ok = bool(tf.config.list_physical_devices('GPU'))",
}


def _cache(f):
    """Calls f once for each set of arguments."""
    cache = {}

    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        key = (args, frozenset(kwargs.items()))
        if key not in cache:
            cache[key] = f(*args, **kwargs)
        return cache[key]

    return wrapper


def get_ext_suffix():
    """The suffix of file names of this interpreter's extension modules."""
    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def get_extension_full_path(pkg_path, *args):
    """Where Horovod has an extension: beside pkg_path, in args[:-1], by the name args[-1]."""
    if not args:
        raise ValueError("get_extension_full_path: the extension's name is missing")
    return os.path.join(os.path.dirname(pkg_path), *args[:-1], args[-1] + get_ext_suffix())


def check_extension(ext_name, ext_env_var, pkg_path, *args):
    """ImportError unless this build serves ext_name ("horovod.torch").

    One native library serves all frameworks here, so there is no file of their own to look for.
    """
    del ext_env_var, pkg_path, args
    if ext_name.rpartition(".")[2] not in _HAS_GPU:
        raise ImportError(
            f"Extension {ext_name} has not been built: it is not part of Ringmaster's horovod"
        )


def _succeeds(code, what, verbose):
    """Whether this code sets ok to a true value in a new interpreter."""
    program = f"import sys; sys.path[:] = {sys.path!r}; ok = True; {code}; sys.exit(0 if ok else 1)"
    if verbose:
        print(f"Checking whether {what}.")
    quiet = None if verbose else subprocess.DEVNULL
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=quiet, stderr=quiet, check=False)
    if verbose:
        print(f"It is {'so' if ended.returncode == 0 else 'NOT so'} that {what}.")
    return ended.returncode == 0


def extension_available(ext_base_name, verbose=False):
    """Whether ``horovod.<ext_base_name>`` and its framework can be imported here."""
    if not ext_base_name.isidentifier():
        return False
    return _succeeds(f"import horovod.{ext_base_name}", f"horovod.{ext_base_name} works", verbose)


@_cache
def gpu_available(ext_base_name, verbose=False):
    """Whether this framework sees a GPU. TensorFlow is queried in this process if it is running, as it
    starts slowly."""
    here = sys.modules.get("tensorflow")
    if ext_base_name == "tensorflow" and hasattr(here, "config"):
        return bool(here.config.list_physical_devices("GPU"))
    code = _HAS_GPU.get(ext_base_name)
    return code is not None and _succeeds(code, f"{ext_base_name} sees a GPU", verbose)


def mpi_built(verbose=False):
    return basics.mpi_built()


def gloo_built(verbose=False):
    return basics.gloo_built()


def nccl_built(verbose=False):
    return basics.nccl_built()


def ddl_built(verbose=False):
    return basics.ddl_built()


def ccl_built(verbose=False):
    return basics.ccl_built()


@contextlib.contextmanager
def env(**kwargs):
    """Environment variables for the time of a ``with``; those that are None stay as they are."""
    wanted = {k: v for k, v in kwargs.items() if v is not None}
    before = {k: os.environ.get(k) for k in wanted}
    try:
        os.environ.update(wanted)
        yield
    finally:
        for k, v in before.items():
            if v is None:
                os.environ.pop(k, None)
            else:
                os.environ[k] = v


def get_average_backwards_compatibility_fun(reduce_ops):
    """The rule for op and the old ``average``: a function (op, average) -> one of reduce_ops."""

    def impl(op, average):
        return basics.reduce_op_from(op, average, (reduce_ops.Average, reduce_ops.Sum))

    return impl


handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(basics)


def num_rank_is_power_2(num_rank):
    """Whether this number of ranks is a power of two, which Horovod's Adasum requires."""
    return num_rank != 0 and (num_rank & (num_rank - 1)) == 0


def split_list(l, n):  # noqa: E741 - Horovod's name of it
    """l in n pieces whose lengths differ by at most one, longer ones first."""
    size, longer = divmod(len(l), n)
    ends = [i * size + min(i, longer) for i in range(n + 1)]
    return [l[begin:end] for begin, end in zip(ends, ends[1:])]


def label_of_place(place, variable):
    """Returns the name of a gradient's operation, the same on all ranks: its index in the list and, for
    error messages, the variable's name without the parts that a process counts ("dense_3/")."""
    last = getattr(variable, "name", "").split("/")[-1].split(":")[0]
    return f"grad.{place}.{re.sub('[^a-zA-Z0-9_]', '_', re.sub('_[0-9]+$', '', last))}"


def check_installed_version(name, version, exception=None):
    """Horovod warns here of a framework that it was not built with. This build serves all versions."""
    del name, version, exception


def is_iterable(x):
    try:
        iter(x)
    except TypeError:
        return False
    return True


@_cache
def is_version_greater_equal_than(ver, target):
    """Whether the version text ver is at least target, which has the form major.minor.patch.

    As in Horovod this takes the package `packaging`, which nothing else here needs; else ImportError.
    """
    from packaging import version

    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(
            "This function only accepts string arguments. \n"
            f"Received:\n\t- ver (type {type(ver)}: {ver})\t- target (type {type(target)}: {target})"
        )
    if len(target.split(".")) != 3:
        raise ValueError(
            f"We only accepts target version values in the form of: major.minor.patch. Received: {target}"
        )
    return version.parse(ver) >= version.parse(target)
