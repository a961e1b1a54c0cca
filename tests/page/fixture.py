# SPDX-License-Identifier: Apache-2.0
"""Serves the files of operator/page/assets and recorded answers, as operator/page/README.md has it.

A test changes `rows`, `denied` and `is_leader`, and sends events to the open streams by send(). As a program it
serves until it is interrupted, for looking at the page: fixture.py [PORT] [JOBS].
"""

from __future__ import annotations

import contextlib
import json
import queue
import re
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jobs

ASSETS = Path(__file__).resolve().parents[2] / "operator/page/assets"
TOKEN = "good-token"
SCRIPTS = ("text.js", "server.js", "list.js", "job.js", "main.js")
FILES = {
    "/": ("text/html", ("index.html",)),
    "/page.css": ("text/css", ("page.css",)),
    "/page.js": ("text/javascript", SCRIPTS),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'none';"
    " frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"
)
JOB = re.compile(r"/api/v1/jobs/(\w+)/([^/]+)/([^/]+)(?:/(\w+))?")


class Page:
    def __init__(self, rows: list[dict], port: int = 0):
        self.rows = {r["uid"]: r for r in rows}
        self.denied: set[str] = set()  # "all", "list", "get", "events", "log"
        self.kinds = ["horovodjobs", "mpijobs"]
        self.is_leader = True
        self.tokens = {TOKEN}
        self.n_ranks = 16
        self.seen: list[str] = []  # paths of requests
        self.streams: list[queue.Queue] = []
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.server.page = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def send(self, name: str | None, data: dict | None = None) -> None:
        """Sends an event to all streams; without a name the streams break off."""
        with self.lock:
            for q in self.streams:
                q.put((name, data))

    def change(self, uid: str, **members) -> None:
        r = self.rows[uid]
        self.rows[uid] = r | members | {"version": str(int(r["version"]) + 1)}
        self.send("change", {"jobs": [self.rows[uid]], "gone": []})

    def remove(self, uid: str) -> None:
        del self.rows[uid]
        self.send("change", {"jobs": [], "gone": [uid]})

    def count(self, part: str) -> int:
        return sum(part in path for path in self.seen)

    def listed(self, namespace: str) -> dict:
        rows = [
            r for r in self.rows.values() if namespace in ("", r["namespace"]) and r["kind"] in self.kinds
        ]
        return {"jobs": rows, "kinds": self.kinds}

    def close(self) -> None:
        self.send(None)
        self.server.shutdown()
        self.server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        pass

    def answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        if code == 503:
            self.send_header("Connection", "close")
        self.end_headers()
        with contextlib.suppress(OSError):  # the page has left
            self.wfile.write(body)

    def json(self, data: dict, code: int = 200) -> None:
        self.answer(code, "application/json", json.dumps(data).encode())

    def refuse(self, code: int, text: str) -> None:
        self.json({"error": text}, code)

    def do_GET(self) -> None:
        page = self.server.page
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        page.seen.append(self.path)
        if url.path in FILES:
            kind, names = FILES[url.path]
            body = b"".join((ASSETS / name).read_bytes() for name in names)
            self.answer(200, f"{kind}; charset=utf-8", body)
        elif not page.is_leader:
            self.refuse(503, "this operator does not lead")
        elif self.headers.get("Authorization", "").removeprefix("Bearer ") not in page.tokens:
            self.refuse(401, "the API server does not accept this token: it has expired")
        elif url.path == "/api/v1/watch":
            self.watch(page, query.get("namespace", ""))
        elif m := JOB.fullmatch(url.path):
            self.job(page, *m.groups(), query)
        else:
            self.refuse(404, f"there is no {url.path}")

    def watch(self, page: Page, namespace: str) -> None:
        if "list" in page.denied or ("all" in page.denied and not namespace):
            where = f"namespace {namespace}" if namespace else "all namespaces"
            return self.refuse(403, f"you may not list horovodjobs in {where}.")
        q: queue.Queue = queue.Queue()
        with page.lock:
            page.streams.append(q)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Connection", "close")
        self.end_headers()
        with contextlib.suppress(OSError):
            item = ("jobs", page.listed(namespace))
            while item[0]:
                self.wfile.write(f"event: {item[0]}\ndata: {json.dumps(item[1])}\n\n".encode())
                if item[0] == "end":
                    break
                item = self.next_item(q)
        with page.lock:
            page.streams.remove(q)
        self.close_connection = True

    def next_item(self, q: queue.Queue) -> tuple:
        while True:
            try:
                return q.get(timeout=5)
            except queue.Empty:
                self.wfile.write(b": ping\n\n")

    def job(self, page: Page, kind: str, namespace: str, name: str, part: str | None, query: dict) -> None:
        r = next(
            (
                r
                for r in page.rows.values()
                if (r["kind"], r["namespace"], r["name"]) == (kind, namespace, name)
            ),
            None,
        )
        access = {"events": "events" not in page.denied, "log": "log" not in page.denied}
        if "get" in page.denied:
            self.refuse(403, f"you may not get {kind} in namespace {namespace}.")
        elif not r:
            self.refuse(404, f"there is no {kind} {namespace}/{name}")
        elif part is None:
            self.json(jobs.detail(r) | {"access": access})
        elif not access["events" if part == "events" else "log"]:
            self.refuse(403, f"you may not read {part} in namespace {namespace}.")
        elif part == "events":
            self.json({"events": jobs.events(r)})
        elif part == "ranks":
            self.json({"ranks": jobs.ranks(page.n_ranks)})
        elif part == "stacks":
            self.json({"text": jobs.stacks(r)})
        elif part == "log" and int(query.get("rank", 0)) >= page.n_ranks:
            self.refuse(404, f"the job has no rank {query['rank']}")
        elif part == "log":
            text = jobs.log(r, query.get("rank", ""), int(query.get("tail", 200)))
            self.json({"pod": f"{name}-worker-0", "container": "worker", "text": text})
        else:
            self.refuse(404, f"there is no {self.path}")


if __name__ == "__main__":
    port, n = [int(x) for x in sys.argv[1:3]] + [8080, 990][len(sys.argv[1:3]) :]
    p = Page(jobs.special() + jobs.many(n), port)
    print(f"{p.url}#token={TOKEN}", flush=True)
    while True:
        time.sleep(3600)
