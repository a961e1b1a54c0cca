# SPDX-License-Identifier: Apache-2.0
"""The name "hvd" for torch.distributed.init_process_group().

Small on purpose: torch loads it by the wheel's entry points, the newest when the name is used, versions
from 2.5 on at each `import torch`. The implementation is imported when a group is created.
"""

import inspect


def _create(options, backend_options=None):
    from _hvd.torch.distributed.start import create_group

    return create_group(options, backend_options)


def _rendezvous(url, **kwargs):
    from _hvd.torch.distributed.start import rendezvous

    return rendezvous(url, **kwargs)


def register():
    """Registers "hvd" and the init_method "hvd://". Idempotent."""
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


def autoload():
    """For the entry point torch.backends: an error here would break `import torch` itself."""
    try:
        import torch.distributed as dist

        if not hasattr(dist.Backend, "_ensure_backend_registered"):  # looks the name up when it is used
            register()
    except Exception as e:
        import warnings

        warnings.warn(
            f'the torch.distributed back end "hvd" is not there: {e}', RuntimeWarning, stacklevel=2
        )
