# SPDX-License-Identifier: Apache-2.0
"""Helpers around tf.data's service: compute workers that prepare data for training ranks."""

import os
import tempfile
import threading

from harness import N, R, hvd, symbol, tf
from horovod.tensorflow.data import compute_service, compute_worker
from horovod.tensorflow.data.compute_service import TfDataServiceConfig

CONFIG = {
    "dispatchers": 1,
    "workers_per_dispatcher": 2,
    "dispatcher_side": "compute",
    "addresses": {"lo": [("127.0.0.1", 1234)]},
    "key": b"\x00\xffkey",
}


@symbol("horovod.tensorflow.data.compute_service.TfDataServiceConfig")
def config(t):
    one = TfDataServiceConfig(**CONFIG)
    assert one.timeout == 60 and one.key == CONFIG["key"]
    assert TfDataServiceConfig.from_dict(one.to_dict()) == one
    t.fails(AttributeError, [], setattr, one, "timeout", 1)  # frozen


@symbol("horovod.tensorflow.data.compute_service.send_to_data_service")
def training_side_is_for_the_context_manager(t):
    one = TfDataServiceConfig(**{**CONFIG, "dispatcher_side": "training"})
    data = tf.data.Dataset.range(3)
    t.fails(RuntimeError, ["training", "tf_data_service"], data.send_to_data_service, one, R)
    t.fails(RuntimeError, ["tf_data_service"], compute_service.send_to_data_service, data, one, R)


@symbol(
    "horovod.tensorflow.data.compute_worker.main", "horovod.tensorflow.data.compute_service.tf_data_service"
)
@symbol("horovod.tensorflow.data.compute_service.compute_worker_fn")
@symbol("horovod.tensorflow.data.compute_service.send_to_data_service")
def compute_workers(t):
    """Both ranks work, and both train in a thread; the last one to have read all ends the service."""
    path = os.path.join(hvd.broadcast_object(tempfile.mkdtemp()), "config.json")
    read, failed = [], []

    def train():
        config = TfDataServiceConfig.read(path, wait_for_file_creation=True)
        try:
            data = tf.data.Dataset.range(20).map(lambda i: i * i)
            read.extend(int(i) for i in data.send_to_data_service(config, R, N))
        except Exception as e:  # reported below, where it counts
            failed.append(e)
        hvd.barrier()
        if R == 0:
            config.compute_client().shutdown()

    thread = threading.Thread(target=train)
    thread.start()
    compute_worker.main(1, "compute", path, 60)
    thread.join()
    assert not failed, failed
    assert sorted(read) == [i * i for i in range(20)], read
    t.fails(ValueError, ["2", "3"], compute_worker.main, 3, "compute", path, 60)
