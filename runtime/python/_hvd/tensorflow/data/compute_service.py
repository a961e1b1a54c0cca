# SPDX-License-Identifier: Apache-2.0
"""tf.data service between two jobs: one that trains, and one whose ranks prepare the data.

    compute job    horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker config.json
    training job   config = TfDataServiceConfig.read("config.json", wait_for_file_creation=True)
                   dataset = dataset.send_to_data_service(config, hvd.rank())

The dispatchers, one for all training ranks or one for each, run in the compute job or in the training job
(dispatcher_side). The compute service (_hvd/compute_service.py) has their addresses. The data are sent by
TensorFlow's own gRPC without authentication: keep such jobs in a network of their own.
"""

import binascii
import contextlib
import dataclasses
import json
import logging
import os
import tempfile
import time
from typing import Mapping, Sequence, Tuple

import tensorflow as tf

from _hvd import basics
from _hvd.compute_service import ComputeClient

SIDES = ("compute", "training")

_log = logging.getLogger("horovod.compute_service")


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """What a training job must know of a compute job. timeout: seconds for each step of the start."""

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Mapping[str, Sequence[Tuple[str, int]]]
    key: bytes
    timeout: int = 60

    def __post_init__(self):
        if self.dispatcher_side not in SIDES:
            raise ValueError(
                f'dispatcher_side must be "compute" or "training", not {self.dispatcher_side!r}'
            )

    def compute_client(self, verbose=1):
        return ComputeClient(self.addresses, self.key, verbose=verbose)

    def to_dict(self):
        """For JSON."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**fields, "key": binascii.hexlify(self.key).decode()}

    @staticmethod
    def from_dict(config):
        fields = dict(config)
        fields["key"] = binascii.unhexlify(fields["key"])
        fields["addresses"] = {
            name: [(host, port) for host, port in addresses]
            for name, addresses in fields["addresses"].items()
        }
        return TfDataServiceConfig(**fields)

    def write(self, filename):
        """Readable by this user only, because it contains the key; created atomically."""
        path = os.path.abspath(filename)
        directory, name = os.path.split(path)
        handle, new = tempfile.mkstemp(dir=directory, prefix=name)  # of mode 0600
        try:
            with os.fdopen(handle, "w") as f:
                json.dump(self.to_dict(), f)
            os.rename(new, path)
        except BaseException:
            os.unlink(new)
            raise

    @staticmethod
    def read(filename, wait_for_file_creation=False):
        """wait_for_file_creation: for as long as it takes the compute job to start."""
        warn_at = time.monotonic() + 60
        while wait_for_file_creation and not os.path.exists(filename):
            if time.monotonic() > warn_at:
                _log.warning("still waiting for %s, which the compute job writes when it starts", filename)
                warn_at = float("inf")
            time.sleep(0.1)
        try:
            with open(filename) as f:
                return TfDataServiceConfig.from_dict(json.load(f))
        except (KeyError, TypeError, ValueError) as e:
            raise ValueError(f"{filename} is no configuration of a compute job: {e}") from e


def _host_for_urls(address):
    return f"[{address}]" if ":" in address else address


@contextlib.contextmanager
def _dispatcher(client, number, is_here):
    """A dispatcher that is registered with the service, while the block runs, where it is to be here."""
    if not is_here:
        yield
        return
    server = tf.data.experimental.service.DispatchServer()
    try:
        # TensorFlow returns localhost, which is wrong on other hosts
        scheme, _, place = server.target.partition("://")
        address = f"{scheme}://{_host_for_urls(client.local_address)}:{place.rpartition(':')[2]}"
        client.register_dispatcher(number, address)
        _log.info("dispatcher %d is at %s", number, address)
        yield
    finally:
        server._stop()  # there is no public way to stop it
        server.join()


@contextlib.contextmanager
def tf_data_service(compute_config, rank):
    """Gives the dispatcher's address for this training rank, once its workers are ready."""
    client = compute_config.compute_client(verbose=2)
    is_own = compute_config.dispatchers > 1
    is_here = compute_config.dispatcher_side == "training" and (is_own or rank == 0)
    number = rank if is_own else 0
    with _dispatcher(client, number, is_here):
        address = client.wait_for_dispatcher_registration(number, compute_config.timeout)
        client.wait_for_dispatcher_worker_registration(number, compute_config.timeout)
        yield address


def send_to_data_service(
    dataset,
    compute_config,
    rank,
    size=None,
    processing_mode="distributed_epoch",
    reuse_dataset=False,
    round_robin=False,
):
    """The dataset, prepared by the compute job. Also a method of tf.data.Dataset.

    reuse_dataset: training ranks share one run of the dataset, in turns with round_robin, which
    needs size, the number of training ranks.
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            "training side dispatcher not supported, use tf_data_service context manager instead"
        )
    in_turns = reuse_dataset and round_robin
    if in_turns and size is None:
        raise ValueError("send_to_data_service: round_robin=True needs size=hvd.size()")
    with tf_data_service(compute_config, rank) as address:
        return dataset.apply(
            tf.data.experimental.service.distribute(
                processing_mode=processing_mode,
                service=address,
                job_name="job" if reuse_dataset else None,
                consumer_index=rank if in_turns else None,
                num_consumers=size if in_turns else None,
            )
        )


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config):
    """Runs on each rank of the compute job: a worker, on some ranks a dispatcher, until the shutdown."""
    basics.init()
    rank = basics.rank()
    number, place = divmod(rank, compute_config.workers_per_dispatcher)
    client = compute_config.compute_client(verbose=2)
    is_here = compute_config.dispatcher_side == "compute" and place == 0
    with _dispatcher(client, number, is_here):
        address = client.wait_for_dispatcher_registration(number, compute_config.timeout)
        service = tf.data.experimental.service
        worker = service.WorkerServer(
            service.WorkerConfig(
                dispatcher_address=address.split("://")[1],
                worker_address=f"{_host_for_urls(client.local_address)}:%port%",
                heartbeat_interval_ms=1000,
                dispatcher_timeout_ms=compute_config.timeout * 1000,
            ),
            start=False,
        )
        try:
            worker.start()
            client.register_worker_for_dispatcher(number, rank)
            _log.info("worker %d of dispatcher %d is ready", rank, number)
            client.wait_for_shutdown()
        finally:
            worker._stop()  # there is no public way to stop it
            worker.join()
