# SPDX-License-Identifier: Apache-2.0
"""A viewer of the status page, for tests with a fake, a real API server or a whole cluster."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading

from api import wait


class PageClient:
    """Of the page at page_port of this host."""

    page_port: int

    def page(self, path: str, token: str | None = None, method: str = "GET", **headers: str):
        """Status, headers and body of a request of its own connection; 0: there was no answer."""
        c = http.client.HTTPConnection("127.0.0.1", self.page_port, timeout=60)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            c.request(method, path, headers=headers)
            r = c.getresponse()
            return r.status, dict(r.getheaders()), r.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, {}, ""
        finally:
            c.close()

    def api(self, path: str, token: str | None) -> tuple[int, dict]:
        status, _, body = self.page("/api/v1" + path, token)
        return status, json.loads(body) if body else {}


class Stream:
    """Events of a stream, as they come."""

    def __init__(self, w: PageClient, token: str, query: str = ""):
        self.events: list[tuple[str, dict]] = []
        self.pings = 0
        self.c = http.client.HTTPConnection("127.0.0.1", w.page_port, timeout=120)
        self.c.request("GET", "/api/v1/watch" + query, headers={"Authorization": f"Bearer {token}"})
        self.socket = self.c.sock
        self.answer = self.c.getresponse()
        self.is_over = False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self) -> None:
        name = ""
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            while line := self.answer.readline().decode():
                if line.startswith("event: "):
                    name = line[7:].strip()
                elif line.startswith("data: "):
                    self.events.append((name, json.loads(line[6:])))
                elif line.startswith(":"):
                    self.pings += 1
        self.is_over = True

    def wait(self, what: str, test) -> None:
        wait(what, lambda: any(test(*e) for e in list(self.events)))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(60)
        self.answer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
