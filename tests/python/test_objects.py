# SPDX-License-Identifier: Apache-2.0
"""Objects that a relay between two ranks replaces are never unpickled, and the error names their sender."""

import json
import pickle
import subprocess
import tempfile
import unittest
from pathlib import Path

from job import DEBIAN_PYTHON, Hosts, bare_ranks, command
from relay import MARK

N = 2000
HERE = Path(__file__).resolve().parent


class Relayed(unittest.TestCase):
    """Bare ranks with torchrun's variables, so the job token is weak; the relay does not know it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "hvd_test_evil.py").write_text("")

    def relay(self, hosts, old, new):
        """All connections of the second host pass through it."""
        name, port = hosts.names[1], 7
        rule = f"ip daddr {hosts.address(0)} meta mark != {MARK} meta l4proto tcp redirect to :{port}"
        for line in (
            "add table ip relay",
            "add chain ip relay out { type nat hook output priority -100 ; }",
            f"add rule ip relay out {rule}",
        ):
            subprocess.run(["ip", "netns", "exec", name, "nft", line], check=True, timeout=60)
        for file, content in (("old", old), ("new", new)):
            (self.folder / file).write_bytes(content)
        files = [self.folder / "old", self.folder / "new"]
        words = ["ip", "netns", "exec", name, DEBIAN_PYTHON, HERE / "relay.py", port, *files]
        process = subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def said(self, old, new, **env):
        """What rank 0 and rank 1 say, and how often the relay replaced something."""
        with Hosts(2) as hosts:
            relay = self.relay(hosts, old, new)
            path = command([DEBIAN_PYTHON, "-c", "import os; print(os.environ['PYTHONPATH'])"]).out.strip()
            ends = bare_ranks(
                2,
                "objects_relayed.py",
                N,
                hosts=hosts,
                timeout=120,
                PYTHONPATH=f"{path}:{self.folder}",
                **env,
            )
            relay.kill()
            n = relay.stdout.read().count("replaced")
        for end in ends:
            self.assertIn("SAID", end.out, end)
        self.out = ends[0].out
        return [json.loads(end.out.split("SAID ")[1].splitlines()[0]) for end in ends], n

    def forged(self):
        """A pickled object, and bytes of its size that import a module when they are unpickled."""
        old = pickle.dumps(b"A" * N, protocol=4)
        return old, b"chvd_test_evil\nx\n.".ljust(len(old), b"\0")

    def test_the_forged_bytes_would_import_a_module(self):
        _, new = self.forged()
        code = f"import pickle, sys\ntry: pickle.loads({new!r})\nfinally: print('hvd_test_evil' in sys.modules)"
        self.assertIn("True", command([DEBIAN_PYTHON, "-c", code], PYTHONPATH=str(self.folder)).out)

    def test_without_changes_the_relay_does_nothing(self):
        (zero, one), n = self.said(b"there is no such object", b"instead of no such one!")
        right = {"broadcast": "right", "allgather": "right", "imported": False}
        self.assertEqual(([zero, one], n), ([right, right], 0))
        self.assertIn(
            "by what broadcast_object and allgather_object unpickle", self.out
        )  # the warning about the token

    def test_a_replaced_object_is_refused(self):
        (zero, one), n = self.said(*self.forged())
        self.assertEqual(n, 3)
        self.assertEqual((zero["imported"], one["imported"]), (False, False))
        refused = "HorovodInternalError: {}: the object from rank {} does not match its MAC"
        self.assertEqual(zero["broadcast"], "right")  # its own
        self.assertIn(refused.format("broadcast_object thing", 0), one["broadcast"])
        self.assertIn(refused.format("allgather_object things", 1), zero["allgather"])
        self.assertIn(refused.format("allgather_object things", 0), one["allgather"])

    def test_by_mac_the_frame_is_refused(self):
        (zero, one), n = self.said(*self.forged(), HVD_DATA_MAC="1")
        self.assertEqual(n, 1)
        self.assertEqual((zero["imported"], one["imported"]), (False, False))
        for said in (one["broadcast"], one["allgather"], zero["allgather"]):
            self.assertIn("the data from rank 0 (host", said)
            self.assertIn("does not match its MAC", said)
