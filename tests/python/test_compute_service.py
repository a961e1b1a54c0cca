# SPDX-License-Identifier: Apache-2.0
"""The meeting place of tf.data services (_hvd/compute_service.py), without a framework."""

import contextlib
import json
import os
import queue
import socket
import struct
import sys
import threading
import unittest
import unittest.mock

from job import STAGE

sys.path.insert(0, str(STAGE / "python"))

from _hvd import compute_service, secret
from _hvd.compute_service import NONCE_BYTES, ComputeClient, ComputeService, NoValidAddressesFound
from _hvd.threads import in_thread
from _hvd.timeouts import TimeoutException

HERE = "127.0.0.1"


def outcome(function, *args):
    """A queue that gets what the function returned or raised, in another thread."""
    said = queue.Queue()

    def call():
        try:
            said.put(function(*args))
        except Exception as e:
            said.put(e)

    in_thread(call)
    return said


class Service(unittest.TestCase):
    def setUp(self):
        self.key = secret.make_secret_key()
        self.service = ComputeService(2, 2, self.key)
        self.addCleanup(self.service.shutdown)
        self.client = ComputeClient(self.service.addresses(), self.key)

    def talk(self, *frames):
        """Sends raw bytes, made from the nonce by each function of frames; returns all that comes back."""
        with socket.create_connection((HERE, self.service.get_port()), 20) as s:
            nonce = s.recv(NONCE_BYTES, socket.MSG_WAITALL)
            said = b""
            with contextlib.suppress(ConnectionError):  # it may hang up before the end
                for frame in frames:
                    s.sendall(frame(nonce))
                with contextlib.suppress(OSError):  # not connected any more
                    s.shutdown(socket.SHUT_WR)
                while part := s.recv(4096):
                    said += part
            return said

    def frame(self, message, key=None):
        body = json.dumps(message).encode()

        def made(nonce):
            digest = secret.compute_digest(key or self.key, b"request" + nonce + body)
            return digest + struct.pack("!I", len(body)) + body

        return made

    def test_waits_end_when_what_they_wait_for_comes(self):
        dispatcher = outcome(self.client.wait_for_dispatcher_registration, 1, 60)
        workers = outcome(self.client.wait_for_dispatcher_worker_registration, 1, 60)
        end = outcome(self.client.wait_for_shutdown)
        self.client.register_dispatcher(1, "grpc://a:1")
        self.assertEqual(dispatcher.get(timeout=60), "grpc://a:1")
        self.client.register_worker_for_dispatcher(1, 7)
        self.client.register_worker_for_dispatcher(0, 8)  # another's
        self.client.register_worker_for_dispatcher(1, 7)  # again
        with self.assertRaises(TimeoutException):
            self.client.wait_for_dispatcher_worker_registration(1, 0.1)
        self.client.register_worker_for_dispatcher(1, 9)
        self.assertIsNone(workers.get(timeout=60))
        self.assertTrue(end.empty())
        self.client.shutdown()
        self.assertIsNone(end.get(timeout=60))

    def test_the_end_of_the_service_ends_waits(self):
        wait, waits = self.service._wait, threading.Event()

        def wait_and_say(*args):  # with the lock held, which shutdown() needs
            waits.set()
            wait(*args)

        self.service._wait = wait_and_say
        waiting = outcome(self.client.wait_for_dispatcher_registration, 0, 60)
        self.assertTrue(waits.wait(60))
        self.service.shutdown()
        self.service.shutdown()
        self.assertIn("shut down before dispatcher 0", str(waiting.get(timeout=60)))
        with self.assertRaisesRegex(ConnectionError, "the compute service at .* does not answer"):
            self.client.register_worker_for_dispatcher(0, 0)
        self.client.wait_for_shutdown()  # it is over

    def test_an_address_that_never_answers_is_not_waited_for(self):
        silent = socket.create_server((HERE, 0))
        self.addCleanup(silent.close)
        addresses = {"lo": [(HERE, self.service.get_port())], "filtered": [silent.getsockname()]}
        with unittest.mock.patch("_hvd.compute_service.LOOPBACK_SECONDS", 0.1):
            said = outcome(ComputeClient, addresses, self.key)
            self.assertEqual(said.get(timeout=15).local_address, HERE)

    def test_another_key_gets_nothing(self):
        other = secret.make_secret_key()
        self.assertEqual(self.talk(self.frame({"do": "shutdown"}, other)), b"")
        self.assertFalse(self.service._is_over)
        with self.assertRaisesRegex(NoValidAddressesFound, "Unable to connect to the Compute service"):
            ComputeClient({"lo": [(HERE, self.service.get_port())]}, other)

    def test_a_request_cannot_be_replayed(self):
        kept = []

        def first(nonce):
            kept.append(self.frame({"do": "register_worker", "dispatcher": 0, "worker": 5})(nonce))
            return kept[0]

        self.assertIn(b"result", self.talk(first))
        self.assertEqual(self.talk(lambda nonce: kept[0]), b"")

    def test_answers_of_another_key_are_refused(self):
        """A service that only pretends to have the key."""
        server = socket.create_server((HERE, 0))
        self.addCleanup(server.close)

        def pretend():
            while True:
                try:
                    s, _ = server.accept()
                except OSError:
                    return
                with s:
                    s.sendall(b"n" * NONCE_BYTES)
                    s.recv(4096)
                    body = json.dumps({"result": ComputeService.NAME}).encode()
                    s.sendall(b"d" * 32 + struct.pack("!I", len(body)) + body)

        in_thread(pretend)
        with self.assertRaisesRegex(NoValidAddressesFound, "digest did not match"):
            ComputeClient({"lo": [server.getsockname()[:2]]}, self.key)

    def test_what_is_no_request_does_no_harm(self):
        big = struct.pack("!I", compute_service.MAX_BYTES + 1)
        for bytes_ in (
            b"",
            b"x" * 20,
            b"x" * 32 + big,
            b"x" * 32 + struct.pack("!I", 9) + b"{}",
            os.urandom(300),
        ):
            self.assertEqual(self.talk(lambda nonce, b=bytes_: b), b"")
        for message in ({"do": "what"}, [], {"do": "register_worker"}, {"do": "ping", "more": 1}, {}):
            self.assertIn(b"ValueError", self.talk(self.frame(message)), message)
        self.client.register_dispatcher(0, "grpc://a:1")

    def test_errors_come_as_what_they_are(self):
        self.client.register_dispatcher(0, "grpc://a:1")
        self.client.register_dispatcher(0, "grpc://a:1")
        with self.assertRaisesRegex(
            ValueError, "already been registered under different address grpc://a:1"
        ):
            self.client.register_dispatcher(0, "grpc://b:1")
        for bad in (-1, 2):
            with self.assertRaisesRegex(IndexError, r"within \[0..1\]"):
                self.client.register_worker_for_dispatcher(bad, 0)
        with self.assertRaisesRegex(TimeoutException, "dispatcher 1 to register.*after 0.05 seconds"):
            self.client.wait_for_dispatcher_registration(1, 0.05)

    def test_arguments_are_checked(self):
        for dispatchers, workers, word in (
            (0, 1, "dispatchers must"),
            (1, 0, "workers per dispatcher must"),
        ):
            with self.assertRaisesRegex(ValueError, word):
                ComputeService(dispatchers, workers, self.key)
        with self.assertRaisesRegex(NoValidAddressesFound, "nosuch0"):
            ComputeService(1, 1, self.key, nics=["nosuch0"])
        only = ComputeService(1, 1, self.key, nics=["lo"])
        self.addCleanup(only.shutdown)
        self.assertEqual(list(only.addresses()), ["lo"])
        self.assertIn(ComputeClient(only.addresses(), self.key).local_address, (HERE, "::1"))

    def test_addresses_that_other_hosts_have_are_rather_used(self):
        wide = {"lo": [(HERE, self.service.get_port())], "gone": [(HERE, 1)]}
        self.assertEqual(ComputeClient(wide, self.key).local_address, HERE)
        others = [a for of in self.service.addresses().values() for a, _ in of if a not in (HERE, "::1")]
        if others:
            with unittest.mock.patch("_hvd.compute_service.LOOPBACK_SECONDS", 60):
                client = ComputeClient(self.service.addresses(), self.key)
            self.assertIn(client.local_address, others)


if __name__ == "__main__":
    unittest.main()
