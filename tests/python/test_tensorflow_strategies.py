# SPDX-License-Identifier: Apache-2.0
"""python -m horovod.compat.strategies: the scripts of strategies/ train as printed, one for all roles."""

import importlib.util
import json
import re
import socket
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

from job import (
    DEBIAN_PYTHON,
    HOROVODRUN,
    ROOT,
    STAGE,
    command,
    each_tf,
    environment,
    free_port,
    only_tf,
    packages,
    start,
)

SCRIPTS = ROOT / "tests/python/strategies"
RUN = ["-m", "horovod.compat.strategies"]
TRAINED = 1  # loss of a model that is trained; a model of zeros has 4.3
CHOSEN = "Keras 3.15.1 does not support the strategies of several processes: tf.keras is tf_keras 2.21.0"


def with_keras_2():
    """PYTHONPATH: the tree under test, and Keras 2 of the newest TensorFlow."""
    return f"{STAGE / 'python'}:{packages('keras2')}"


def tf_config(cluster, role, index=0):
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})


@each_tf
class Strategies(unittest.TestCase):
    def has_trained(self, out):
        """What parameter_server.py prints: 5 batches of 80 examples, 3 of 60 % of them."""
        steps, loss = re.search(r"(\d+) steps, val_loss (\S+)", out).groups()
        self.assertEqual(steps, "5", out)
        self.assertLess(float(loss), TRAINED, out)
        self.assertIn("split: 3 steps", out)
        self.assertIn("at exit: []", out)
        keras = re.search(r"evaluated: (\S+), (\w+)", out)
        self.assertLess(float(keras[1]), TRAINED, out)
        self.assertEqual(keras[2], "tf_keras" if self.tf == "tf" else "keras", out)

    @only_tf("tf")  # the same with the other one, by horovodrun
    def test_two_workers_and_a_server_end_with_the_chief(self):
        roles = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)]
        cluster = {"chief": [], "worker": [], "ps": []}
        for role, _ in roles:
            cluster[role].append(f"127.0.0.1:{free_port()}")
        words = [self.python, *RUN, SCRIPTS / "parameter_server.py"]
        tasks = [
            start(words, environment(PYTHONPATH=with_keras_2(), TF_CONFIG=tf_config(cluster, *role)))
            for role in roles
        ]
        try:
            outs = [task.communicate(timeout=600)[0] for task in tasks]
        finally:
            for task in tasks:
                task.kill()
        self.assertEqual([task.returncode for task in tasks], [0] * 4, outs)
        self.has_trained(outs[0])
        self.assertIn(CHOSEN, outs[0])
        for out in outs[1:]:
            self.assertNotIn("steps", out)
            self.assertNotIn("Keras", out)

    @only_tf("tf215")
    def test_parameter_servers_by_horovodrun(self):
        """The guide's program."""
        section = (
            (ROOT / "runtime/python/GUIDE.md").read_text().split("\n## TensorFlow's own strategies")[1]
        )
        line = re.search(r"\n    horovodrun (.*)\n", section)[1].replace("python", str(self.python), 1)
        program = re.search(r"^    import .*\n(?:(?:    .*)?\n)+", section, re.MULTILINE)[0]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "train.py").write_text(textwrap.dedent(program))
            ended = command([HOROVODRUN, *line.split()], cwd=folder)
        self.assertEqual(ended.code, 0, ended)
        last = re.search(r"val_loss \d\S+ to (\S+)", ended.out)[1]
        self.assertLess(float(last), TRAINED, ended)
        self.assertNotIn("Keras", ended.out)

    @only_tf("tf")
    def test_multi_worker_mirrored_by_horovodrun(self):
        words = [HOROVODRUN, "-np", 2, "--framework", "tf-multiworker", self.python, *RUN]
        ended = command([*words, SCRIPTS / "multi_worker.py"], PYTHONPATH=with_keras_2())
        self.assertEqual(ended.code, 0, ended)
        losses = re.findall(r"replicas 2, val_loss (\S+)", ended.out)
        self.assertEqual(len(losses), 2, ended)
        self.assertEqual(losses[0], losses[1], ended)
        self.assertLess(float(losses[0]), TRAINED, ended)
        self.assertEqual(ended.out.count(CHOSEN), 1, ended)

    @only_tf("tf")  # the one with Keras 3
    def test_what_cannot_run_says_so(self):
        ended = command([self.python, *RUN, SCRIPTS / "refused.py", free_port(), free_port()])
        self.assertIn(
            "without TF_CONFIG: TF_CONFIG is unset: ParameterServerStrategy needs a chief", ended.out
        )
        self.assertRegex(
            ended.out, r"with Keras 3: Keras 3\.\S+ does not support ParameterServer.*: pip install"
        )


class Roles(unittest.TestCase):
    """What happens before TensorFlow is imported."""

    def ends(self, config, text, **extra):
        ended = command([DEBIAN_PYTHON, *RUN, "train.py"], TF_CONFIG=config, cwd="/", **extra)
        self.assertEqual(ended.code, 1, ended)
        self.assertIn("horovod.compat.strategies: " + text, ended.out)
        self.assertEqual(ended.out.count("\n"), 1, ended)

    def test_a_bad_tf_config_is_named(self):
        for config in (
            "{",
            "[]",
            '{"task": {}, "cluster": 1}x',
            '{"task": {"type": "worker", "index": "x"}}',
        ):
            self.ends(config, f"TF_CONFIG is not a cluster and a task in JSON: {config}")
        cluster = {"worker": ["a:1"], "ps": ["a:2"]}
        self.ends(tf_config(cluster, "ps"), "TF_CONFIG has parameter servers and no chief")

    def test_a_chief_that_does_not_come_is_named(self):
        address = f"127.0.0.1:{free_port()}"
        cluster = {"chief": [address], "worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}
        text = (
            f"worker 0: the chief at {address} does not answer within HOROVOD_START_TIMEOUT=0.5: Connection"
        )
        self.ends(tf_config(cluster, "worker"), text, HOROVOD_START_TIMEOUT="0.5")
        text = 'worker 0: HOROVOD_START_TIMEOUT="soon" is not such as 600'
        self.ends(tf_config(cluster, "worker"), text, HOROVOD_START_TIMEOUT="soon")

    def test_the_end_of_the_chief_is_the_end_of_its_connection(self):
        where = STAGE / "python/_hvd/compat/cluster.py"
        spec = importlib.util.spec_from_file_location("cluster", where)
        cluster = importlib.util.module_from_spec(spec)
        with mock.patch.object(sys, "path", [str(STAGE / "python"), *sys.path]):
            spec.loader.exec_module(cluster)
        for sent, why in ((b"", None), (b"PRI", "does not run under this program")):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                connection = socket.create_connection(listener.getsockname())
                with connection, listener.accept()[0] as chief:
                    chief.sendall(sent)
                    chief.shutdown(socket.SHUT_WR)
                    got = cluster.wait_for_end(connection)
            self.assertEqual(got and got[: len(why or "")], why)
        with socket.create_server(("127.0.0.1", 0)) as listener:  # as the chief's: nothing is accepted
            connection = socket.create_connection(listener.getsockname())
        with connection:
            self.assertIsNone(cluster.wait_for_end(connection))
