#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""forward.py NETNS ADDRESS PORT URLFILE: the way from this machine into the cluster.

Listens on a free port of the machine's loopback, writes https://127.0.0.1:PORT to URLFILE,
and connects each client to ADDRESS:PORT inside the network namespace NETNS. A socket stays in
the namespace where it was made, so the program listens first, then starts itself again inside
NETNS with the listening socket inherited.
"""

import asyncio
import os
import socket
import sys


async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except (OSError, RuntimeError):
        writer.close()


async def serve(listener, address, port):
    async def client(reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection(address, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
        writer.close()
        far_writer.close()

    server = await asyncio.start_server(client, sock=listener)
    await server.serve_forever()


def main():
    if sys.argv[1] == "--inside":
        fd, address, port = int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
        asyncio.run(serve(socket.socket(fileno=fd), address, port))
        return
    netns, address, port, url_file = sys.argv[1:5]
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    listener.set_inheritable(True)
    with open(url_file + ".new", "w") as f:
        f.write(f"https://127.0.0.1:{listener.getsockname()[1]}\n")
    os.rename(url_file + ".new", url_file)
    os.execvp(
        "nsenter",
        [
            "nsenter",
            "--net=" + netns,
            "--",
            sys.executable,
            __file__,
            "--inside",
            str(listener.fileno()),
            address,
            port,
        ],
    )


main()
