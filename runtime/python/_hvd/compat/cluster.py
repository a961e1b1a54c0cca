# SPDX-License-Identifier: Apache-2.0
"""The roles of TF_CONFIG: workers and parameter servers run a server until the chief ends.

TensorFlow's servers never end by themselves. Their processes connect to the chief's address of TF_CONFIG
and wait until that connection ends, because the system closes it with the chief's process. No launcher
takes part, so it works under each. TensorFlow's coordinator, in the chief's process, would listen at that
address; it takes the address from TF_CONFIG of its own process, which gets another port.

    server's process               chief's process
    connect, until it works  --->  announce(): listens at the address of TF_CONFIG, accepts nothing
    tf.distribute.Server  <------- coordinator: at a port that the kernel chose, in this process' TF_CONFIG
    recv()  <---- closed --------  the end
    exit code 0
"""

import json
import os
import socket
import sys
import time

from _hvd import knobs

_START = "HOROVOD_START_TIMEOUT"
_kept = []  # until the process ends: the chief's listening socket, a server


class Task:
    """This process in TF_CONFIG. asker: the program that reads it, for messages."""

    def __init__(self, config, asker):
        self.asker = asker
        self.cluster = config.get("cluster") or {}
        self.role, self.index = config["task"]["type"], int(config["task"]["index"])
        has_ps = bool(self.cluster.get("ps"))
        self.is_server = has_ps and self.role in ("worker", "ps")
        self.is_chief = has_ps and self.role == "chief"
        self.is_multiple = has_ps or len(self.cluster.get("worker", ())) > 1
        self.is_first = self.is_chief or (self.role, self.index) == ("worker", 0)

    def __str__(self):
        return f"{self.asker}: {self.role} {self.index}"

    def chief(self):
        """(host, port) of the chief."""
        addresses = self.cluster.get("chief")
        if not addresses:
            sys.exit(f"{self.asker}: TF_CONFIG has parameter servers and no chief, which runs the script")
        host, _, port = addresses[0].rpartition(":")
        return host.strip("[]"), int(port)


def read_task(asker):
    """The Task of TF_CONFIG; None where it is unset or names no task."""
    text = os.environ.get("TF_CONFIG")
    if not text:
        return None
    try:
        config = json.loads(text)
        return Task(config, asker) if config.get("task") else None
    except (ValueError, KeyError, TypeError, AttributeError):
        sys.exit(f"{asker}: TF_CONFIG is not a cluster and a task in JSON: {text[:200]}")


def announce(task):
    """In the chief, before TensorFlow reads TF_CONFIG: listens for the servers, moves the coordinator."""
    _, port = task.chief()
    _kept.append(_listen(port, backlog=4096))
    with _listen(0) as free:
        own = free.getsockname()[1]
    config = json.loads(os.environ["TF_CONFIG"])
    address = config["cluster"]["chief"][0]
    config["cluster"]["chief"][0] = f"{address.rpartition(':')[0]}:{own}"
    os.environ["TF_CONFIG"] = json.dumps(config)
    # a lost worker is an error that the coordinator handles, instead of a call that waits
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")


def _listen(port, backlog=1):
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True
        )
    return socket.create_server(("", port), backlog=backlog)


def serve(task, import_tensorflow):
    """Runs TensorFlow's server until the chief ends, and this process with it."""
    connection = connect(task)
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    tf = import_tensorflow()
    config = tf.compat.v1.ConfigProto()
    # on a small host, fewer threads than tasks that wait for each other can be a deadlock
    tasks = sum(len(addresses) for addresses in task.cluster.values())
    config.inter_op_parallelism_threads = max(os.cpu_count() or 1, tasks)
    _kept.append(
        tf.distribute.Server(
            tf.train.ClusterSpec(task.cluster),
            job_name=task.role,
            task_index=task.index,
            config=config,
        )
    )
    why = wait_for_end(connection)
    if why:
        sys.exit(f"{task}: the chief {why}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # TensorFlow's server has threads that never end


def connect(task):
    """A connection to the chief's process; ends this process when there is none in time."""
    host, port = task.chief()
    try:
        limit = time.monotonic() + knobs.milliseconds_of(_START, "600") / 1000
    except ValueError as e:
        sys.exit(f"{task}: {e}")
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=10)
            if connection.getsockname() != connection.getpeername():
                return connection
            connection.close()  # to itself, from the chief's port
        except OSError as e:
            if time.monotonic() >= limit:
                sys.exit(
                    f"{task}: the chief at {host}:{port} does not answer within {_START}="
                    f"{os.environ.get(_START) or 600}: {e.strerror or e}"
                )
        time.sleep(0.2)


def wait_for_end(connection):
    """None when the chief has ended; else what is wrong with it."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    try:
        if connection.recv(1):
            return "does not run under this program: something else listens at its address"
    except ConnectionResetError:
        pass
    except OSError as e:
        return f"is lost: {e.strerror or e}"
    return None
