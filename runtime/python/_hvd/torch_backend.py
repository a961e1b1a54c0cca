# SPDX-License-Identifier: Apache-2.0
"""The name "hvd" for torch.distributed.init_process_group().

Small on purpose: torch loads it by the wheel's entry points, the newest when the name is used, versions
from 2.5 on at each `import torch`. The implementation is imported when a group is created.
"""

import importlib
import inspect
import os

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_LAUNCHERS = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_asked = False  # the script has named "hvd" or imported its package


def _create(options, backend_options=None):
    from _hvd.torch.distributed.start import create_group

    return create_group(options, backend_options)


def _rendezvous(url, **kwargs):
    from _hvd.torch.distributed.start import rendezvous

    return rendezvous(url, **kwargs)


def _use_own_discovery():
    """env:// without torch's variables becomes hvd://. For a script that has not asked for "hvd" only where
    a launcher has given a rank: else a training by another back end would start alone on each host."""
    # By its name: the package has a function that is called like it.
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    original = handlers.get("env")
    if original is None or getattr(original, "is_hvd", False):
        return

    def env_or_hvd(url, *args, **kwargs):
        is_ours = _asked or any(v in os.environ for v in _LAUNCHERS)
        if not is_ours or "?" in url or any(v in os.environ for v in _VARIABLES):
            return original(url, *args, **kwargs)
        return _rendezvous(url, **kwargs)

    env_or_hvd.is_hvd = True
    handlers["env"] = env_or_hvd


def register():
    """Registers "hvd", the init_method "hvd://", and discovery without torch's variables. Idempotent."""
    global _asked
    _asked = True
    _register()


def _register():
    import torch.distributed as dist

    if not dist.is_available() or "HVD" in dist.Backend._plugins:
        return
    register_backend = dist.Backend.register_backend
    options = {"extended_api": True}
    if "devices" in inspect.signature(register_backend).parameters:
        options["devices"] = ["cpu", "cuda"]
    # The first back end of a device becomes the default of init_process_group(None); Gloo is it already.
    register_backend("hvd", _create, **options)
    from torch.distributed.rendezvous import register_rendezvous_handler

    register_rendezvous_handler("hvd", _rendezvous)
    _use_own_discovery()
    # torch's flight recorder needs a back end in C++, except of those that are said to record themselves.
    recording = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", None)
    if isinstance(recording, set):
        recording.add("hvd")


def autoload():
    """For the entry point torch.backends: an error here would break `import torch` itself."""
    try:
        import torch.distributed as dist

        if not hasattr(dist.Backend, "_ensure_backend_registered"):
            _register()
        elif dist.is_available():  # the name is looked up when it is used, but after the rendezvous
            _use_own_discovery()
    except Exception as e:
        import warnings

        warnings.warn(
            f'the torch.distributed back end "hvd" is not there: {e}', RuntimeWarning, stacklevel=2
        )
