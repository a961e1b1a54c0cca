# SPDX-License-Identifier: Apache-2.0
"""The compute side of a tf.data service as a program.

    horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker /shared/config.json

Each rank is a worker, rank 0 hosts the compute service and writes the file by which the training job
finds it. It exits when the training job requests it.
"""

import argparse

from _hvd import basics, objects, secret
from _hvd.compute_service import ComputeService
from _hvd.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn


def main(dispatchers, dispatcher_side, configfile, timeout):
    """A worker on each rank until the service is shut down. timeout: seconds for each step of the start."""
    basics.init()
    size = basics.size()
    if dispatchers < 1 or size % dispatchers:
        raise ValueError(
            f"Number of processes ({size}) must be a multiple of number of dispatchers ({dispatchers})."
        )
    service = None
    try:
        config = None
        if basics.rank() == 0:
            key = secret.make_secret_key()
            service = ComputeService(dispatchers, size // dispatchers, key)
            config = TfDataServiceConfig(
                dispatchers=dispatchers,
                workers_per_dispatcher=size // dispatchers,
                dispatcher_side=dispatcher_side,
                addresses=service.addresses(),
                key=key,
                timeout=timeout,
            )
            config.write(configfile)
        config = objects.broadcast_object(config, name="TfDataServiceConfig")
        compute_worker_fn(config)
    finally:
        if service is not None:
            service.shutdown()


def command_line():
    parser = argparse.ArgumentParser(prog="horovod.tensorflow.data.compute_worker")
    parser.add_argument("configfile", help="where to write the file that the training job reads")
    parser.add_argument(
        "--dispatchers",
        default=1,
        type=int,
        help="number of dispatchers, of which the ranks are a multiple",
    )
    parser.add_argument(
        "--dispatcher-side",
        default="compute",
        choices=["compute", "training"],
        help="which job runs the dispatchers",
    )
    parser.add_argument(
        "--timeout", default=60, type=int, help="seconds that each step of the start may take"
    )
    args = parser.parse_args()
    main(args.dispatchers, args.dispatcher_side, args.configfile, args.timeout)
