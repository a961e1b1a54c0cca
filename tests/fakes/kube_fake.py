# SPDX-License-Identifier: Apache-2.0
"""An API server that misbehaves on demand: just enough of list, watch, create, get, patch and delete
for one operator, with a hook before every answer. The honest behaviour it imitates is checked by
tests/operator/real_test.py, which runs the same life cycle against the real one.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PLURALS = (
    "horovodjobs",
    "mpijobs",
    "jobs",
    "pods",
    "services",
    "secrets",
    "configmaps",
    "podgroups",
    "priorityclasses",
    "events",
    "leases",
)


def selected(obj: dict, query: dict) -> bool:
    """Of label selectors the two forms "key" and "key=value"."""
    key, _, value = query.get("labelSelector", "").partition("=")
    labels = obj["metadata"].get("labels", {})
    return not key or (key in labels and value in ("", labels[key]))


class Fake:
    """objects[plural][namespace/name]; every change gets the next resourceVersion and is kept in the
    log that watches read. hook(handler, method, plural, query) may answer itself and return True; to it
    and to count() the pods of MPIJobs are "mpi-pods"."""

    def __init__(self):
        self.changed = threading.Condition()
        self.version = 100
        self.objects: dict[str, dict[str, dict]] = {p: {} for p in PLURALS}
        self.log: list[tuple[int, str, str, dict]] = []
        self.requests: list[tuple[str, str, dict]] = []
        self.hook = None
        self.pruned: tuple[str, ...] = ()  # fields of the jobs' status that the CRD does not have
        self.stopping = False
        fake = self

        self.connections: list[socket.socket] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                fake.connections.append(self.connection)

            def log_message(self, *_):
                pass

            def do_GET(self):
                fake.serve(self, "GET")

            def do_POST(self):
                fake.serve(self, "POST")

            def do_PUT(self):
                fake.serve(self, "PUT")

            def do_PATCH(self):
                fake.serve(self, "PATCH")

            def do_DELETE(self):
                fake.serve(self, "DELETE")

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):  # a connection that a test cut
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.stopping = True
        with self.changed:
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()

    def cut(self) -> None:
        """Ends all connections."""
        while self.connections:
            with contextlib.suppress(OSError):
                self.connections.pop().shutdown(socket.SHUT_RDWR)

    # --- what a test does ------------------------------------------------------------------
    def put(self, plural: str, obj: dict, event: str | None = None) -> dict:
        with self.changed:
            self.version += 1
            meta = obj["metadata"]
            meta.setdefault("namespace", "ns")
            meta.setdefault("uid", f"uid-{self.version}")
            meta["resourceVersion"] = str(self.version)
            key = f"{meta['namespace']}/{meta['name']}"
            event = event or ("MODIFIED" if key in self.objects[plural] else "ADDED")
            if event == "DELETED":
                self.objects[plural].pop(key, None)
            else:
                self.objects[plural][key] = obj
            self.log.append((self.version, plural, event, json.loads(json.dumps(obj))))
            self.changed.notify_all()
            return obj

    def count(self, method: str, plural: str, watch: bool | None = None) -> int:
        with self.changed:
            return sum(
                1
                for m, p, q in self.requests
                if m == method and p == plural and (watch is None or ("watch" in q) == watch)
            )

    # --- requests --------------------------------------------------------------------------
    def serve(self, h, method: str) -> None:
        at = urlsplit(h.path)
        query = {k: v[0] for k, v in parse_qs(at.query).items()}
        parts = at.path.split("/")
        plural = next(p for p in parts if p in PLURALS)
        rest = parts[parts.index(plural) + 1 :]
        body = h.rfile.read(int(h.headers.get("Content-Length") or 0))
        name = "mpi-pods" if "training." in query.get("labelSelector", "") else plural
        with self.changed:
            self.requests.append((method, name, query))
        if self.hook and self.hook(h, method, name, query):
            return
        if method == "GET" and "watch" in query:
            self.watch(h, plural, query)
        elif method == "GET" and not rest:
            with self.changed:
                found = [o for o in self.objects[plural].values() if selected(o, query)]
                first = int(query.get("continue", 0))
                after = first + int(query.get("limit", 0) or len(found))
                out = {
                    "items": found[first:after],
                    "metadata": {"resourceVersion": str(self.version)},
                }
                if after < len(found):
                    out["metadata"]["continue"] = str(after)
                text = json.dumps(out)
            self.answer(h, 200, text)
        else:
            self.answer(h, *self.one(method, plural, rest, json.loads(body) if body else {}, parts))

    def one(self, method: str, plural: str, rest: list[str], body: dict, parts: list[str]):
        ns = parts[parts.index("namespaces") + 1]
        if method == "POST":
            key = f"{ns}/{body['metadata']['name']}"
            if key in self.objects[plural]:
                return 409, '{"reason": "AlreadyExists", "message": "already exists"}'
            if plural == "pods":
                body["status"] = {"phase": "Pending"}
            return 201, json.dumps(self.put(plural, body))
        key = f"{ns}/{rest[0]}"
        obj = self.objects[plural].get(key)
        if obj is None:
            return 404, '{"reason": "NotFound", "message": "not found"}'
        if method == "PUT":
            with self.changed:
                if body["metadata"].get("resourceVersion") != obj["metadata"]["resourceVersion"]:
                    return 409, '{"reason": "Conflict", "message": "modified"}'
            return 200, json.dumps(self.put(plural, body))
        if method == "PATCH":
            status = obj.get("status", {}) | body.get("status", {})
            status = {k: v for k, v in status.items() if k not in self.pruned}
            if plural == "horovodjobs" and status == obj.get("status"):
                return 200, json.dumps(obj)  # nothing changes: no new version, no event
            obj = json.loads(json.dumps(obj))
            obj["status"] = status
            return 200, json.dumps(self.put(plural, obj))
        if method == "DELETE":
            return 200, json.dumps(self.put(plural, obj, "DELETED"))
        return 200, json.dumps(obj)

    @staticmethod
    def answer(h, code: int, text: str, **headers: str) -> None:
        data = text.encode()
        h.send_response(code)
        h.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            h.send_header(name.replace("_", "-"), value)
        h.end_headers()
        h.wfile.write(data)

    # --- watches ---------------------------------------------------------------------------
    @staticmethod
    def begin_watch(h) -> None:
        h.send_response(200)
        h.send_header("Transfer-Encoding", "chunked")
        h.end_headers()

    @staticmethod
    def chunk(h, data: bytes) -> None:
        h.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        h.wfile.flush()

    @classmethod
    def event(cls, h, kind: str, obj: dict) -> None:
        cls.chunk(h, json.dumps({"type": kind, "object": obj}).encode() + b"\n")

    def watch(self, h, plural: str, query: dict) -> None:
        since = int(query["resourceVersion"])
        self.begin_watch(h)
        h.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not self.stopping:
            with self.changed:
                news = [e for e in self.log if e[0] > since and e[1] == plural]
                if not news:
                    self.changed.wait(1)
                    continue
            for version, _, kind, obj in news:
                if selected(obj, query):
                    self.event(h, kind, obj)
                since = version
