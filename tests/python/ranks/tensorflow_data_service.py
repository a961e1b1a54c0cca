# SPDX-License-Identifier: Apache-2.0
"""tf.data service: two training ranks take a dataset from a compute job of its own, and from threads."""

import os
import stat
import subprocess
import sys
import tempfile

import horovod.tensorflow as hvd
import tensorflow as tf
from checks import check, expect_error, main
from horovod.runner.util.threads import in_thread
from horovod.tensorflow.data import compute_worker
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

hvd.init()
R, N = hvd.rank(), hvd.size()
FOLDER = hvd.broadcast_object(tempfile.mkdtemp() if R == 0 else None)


def config_of(**changes):
    fields = {
        "dispatchers": 1,
        "workers_per_dispatcher": 2,
        "dispatcher_side": "compute",
        "addresses": {"lo": [("127.0.0.1", 4), ("::1", 4)]},
        "key": b"\x01\xff",
        "timeout": 5,
    }
    return TfDataServiceConfig(**{**fields, **changes})


@check
def a_configuration_travels_by_a_private_file():
    config, path = config_of(), os.path.join(FOLDER, f"round.{R}")
    config.write(path)
    assert TfDataServiceConfig.read(path) == config
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(FOLDER).count(f"round.{R}") == 1
    with open(path, "w") as f:
        f.write('{"key": "zz"}')
    expect_error(ValueError, [path, "no configuration"], TfDataServiceConfig.read, path)
    expect_error(FileNotFoundError, [], TfDataServiceConfig.read, os.path.join(FOLDER, "nothing"))


@check
def arguments_are_checked():
    expect_error(ValueError, ["dispatcher_side", "'both'"], config_of, dispatcher_side="both")
    data, options = tf.data.Dataset.range(4), {"reuse_dataset": True, "round_robin": True}
    words = ["round_robin=True needs size"]
    expect_error(ValueError, words, data.send_to_data_service, config_of(), R, **options)
    words = [f"({N}) must be a multiple of number of dispatchers ({N + 1})"]
    expect_error(ValueError, words, compute_worker.main, N + 1, "compute", FOLDER + "/no", 5)


def numbers_of(dataset):
    return sorted(int(x) for batch in dataset.as_numpy_iterator() for x in batch)


DATA = tf.data.Dataset.range(60).batch(4)


@check
def dispatchers_of_the_training_side_serve_each_rank():
    """Each rank's main() runs in a thread, as in Horovod's own test."""
    path, ended = os.path.join(FOLDER, "training"), []
    worker = in_thread(lambda: ended.append(compute_worker.main(N, "training", path, 240)))
    config = TfDataServiceConfig.read(path, wait_for_file_creation=True)
    with tf_data_service(config, R) as address:
        service = tf.data.experimental.service
        numbers = numbers_of(DATA.apply(service.distribute("distributed_epoch", address)))
    got = hvd.allgather_object((address, numbers))
    if R == 0:
        config.compute_client().shutdown()
    worker.join(240)
    assert ended == [None]
    assert len({address for address, _ in got}) == N
    assert all(numbers == list(range(60)) for _, numbers in got), got


@check
def a_compute_job_of_its_own_serves_and_ends():
    path = os.path.join(FOLDER, "program")
    program = None
    if R == 0:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("HOROVOD_", "HVD_"))}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            env.pop(name, None)
        argv = [sys.executable, "-m", "horovod.tensorflow.data.compute_worker", "--timeout", "240", path]
        program = subprocess.Popen(argv, env=env)
    config = TfDataServiceConfig.read(path, wait_for_file_creation=True)
    assert config.workers_per_dispatcher == 1 and config.timeout == 240
    numbers = numbers_of(DATA.send_to_data_service(config, R, N))
    assert numbers == list(range(60))
    hvd.allgather_object(None)
    if program:
        config.compute_client().shutdown()
        assert program.wait(240) == 0


main(R)
