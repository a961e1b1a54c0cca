# SPDX-License-Identifier: Apache-2.0
"""A process of an elastic job that does what its test sends: no framework.

It has one socket to the launcher and one to the test.

usage: python3 -S elastic_member.py SOCKET     SOCKET is where the test listens; started by horovodrun
"""

import os
import select
import signal  # noqa: F401  for what the test sends
import socket
import sys

CLOSED, DONE = b"\xff", b"\xfe"  # no first byte of the launcher's messages


def main():
    name, place = os.environ["HVD_ELASTIC"].rsplit(":", 1)
    test = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    launcher = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    test.connect(sys.argv[1])
    launcher.connect("\0" + name)
    test.send(f"{place} {os.getpid()}".encode())
    watched = [test, launcher]
    while True:
        for ready in select.select(watched, [], [])[0]:
            try:
                packet = ready.recv(4096)
            except ConnectionResetError:
                packet = b""
            if ready is launcher:
                test.send(packet or CLOSED)
                if not packet:
                    watched.remove(launcher)
            elif packet:
                exec(packet.decode(), {**globals(), "test": test, "launcher": launcher})
                test.send(DONE)
            else:
                os._exit(1)  # its test has ended


main()
