# SPDX-License-Identifier: Apache-2.0
"""A relay that replaces pickled objects on the data connections that pass through it.

    relay.py PORT FROM TO

Connections reach PORT by a rule that redirects them; the relay continues them to where they were meant to
go, with MARK, which the rule lets pass. FROM and TO are files of equal size: each data frame
(runtime/backend/cpu/net_frame.h) that contains the first gets the second instead. Prints "ready", then
"replaced" each time.
"""

import contextlib
import socket
import struct
import sys
import threading

MARK = 7
SO_ORIGINAL_DST = 80
ROLE_DATA = 5  # runtime/wire/auth.h, byte 5 of a client's first message
HANDSHAKE = {"client": 76 + 32 + 4, "server": 76}
HEADER = 64


class Closed(Exception):
    pass


def receive(sock, n):
    got = b""
    while len(got) < n:
        more = sock.recv(n - len(got))
        if not more:
            raise Closed
        got += more
    return got


def pass_frames(source, sink, old, new):
    while True:
        header = receive(source, HEADER)
        n = struct.unpack("<I", header[:4])[0]
        data = receive(source, (n + 63) // 64 * 64)
        if old in data:
            data = data.replace(old, new)
            print("replaced", flush=True)
        sink.sendall(header + data)


def pass_way(side, source, sink, hello, change):
    try:
        sink.sendall(hello)
        if change:
            for _ in range(HANDSHAKE[side] - len(hello)):  # the sender waits for replies within it
                sink.sendall(receive(source, 1))
            pass_frames(source, sink, *change)
        while more := source.recv(65536):
            sink.sendall(more)
    except (Closed, OSError):
        pass
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def serve(client, change):
    where = client.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
    try:
        server.connect((socket.inet_ntoa(where[4:8]), struct.unpack(">H", where[2:4])[0]))
        hello = receive(client, 6)
    except (Closed, OSError):  # nobody listens there yet: the client tries again
        client.close()
        return
    change = change if hello[:4] == b"HVD1" and hello[5] == ROLE_DATA else None
    threading.Thread(target=pass_way, args=("server", server, client, b"", change), daemon=True).start()
    pass_way("client", client, server, hello, change)


def main():
    change = []
    for path in sys.argv[2:4]:
        with open(path, "rb") as f:
            change.append(f.read())
    listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
    print("ready", flush=True)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, change), daemon=True).start()


if __name__ == "__main__":
    main()
