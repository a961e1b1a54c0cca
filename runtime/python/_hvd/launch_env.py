# SPDX-License-Identifier: Apache-2.0
"""What a script can read from its environment before ``init()`` (``horovod.runner.common.util.env``).

The runtime finds its rank itself and in more ways (runtime/contract). This is for code that needs its rank
before, or without, the framework modules.
"""

import os
import re

LOG_LEVEL_STR = ["FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "TRACE"]

# Variables that Horovod's launchers keep from the ranks.
IGNORE_REGEXES = {"BASH_FUNC_.*", "OLDPWD", ".*CUDA_VISIBLE_DEVICES", "_HOROVOD_SECRET_KEY"}

KUBEFLOW_MPI_EXEC = "/etc/mpi/kubexec.sh"

_PAIRS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def is_exportable(v):
    """Whether a launcher may pass the variable of this name to ranks."""
    return not any(re.match(r, v) for r in IGNORE_REGEXES)


def get_env_rank_and_size():
    """(rank, size) by Horovod's variables, Open MPI's, PMI's, then torchrun's; (0, 1) without any."""
    for rank_name, size_name in _PAIRS:
        rank, size = os.environ.get(rank_name), os.environ.get(size_name)
        if rank is not None and size is not None:
            return int(rank), int(size)
        if rank is not None or size is not None:
            raise RuntimeError(
                "Could not determine process rank and size: only one of "
                f"{rank_name} and {size_name} found in environment"
            )
    # RANK and WORLD_SIZE are common names: they count only if both are set.
    rank, size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    return (0, 1) if rank is None or size is None else (int(rank), int(size))


def is_kubeflow_mpi():
    """Whether Kubeflow's MPI operator started this process."""
    return os.environ.get("OMPI_MCA_plm_rsh_agent") == KUBEFLOW_MPI_EXEC  # noqa: SIM112
