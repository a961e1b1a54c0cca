# SPDX-License-Identifier: Apache-2.0
"""An API server that misbehaves on demand: just enough of list, watch, create, get, patch and delete
for one operator, with a hook before every answer. tests/operator/real_fake.py sends the same requests to it and
to the real one, and compares the answers.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import socket
import threading
import time
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
    "workloads",
)
REVIEWS = ("tokenreviews", "subjectaccessreviews")
AUDIENCE = "https://kubernetes.default.svc"  # the API server's own
GROUPS = {"horovodjobs": "ringmaster.dev", "mpijobs": "kubeflow.org"}  # of other kinds ""


def compact(value: object) -> str:
    """JSON without spaces, as the API server writes it."""
    return json.dumps(value, separators=(",", ":"))


def selected(obj: dict, query: dict) -> bool:
    """Of label selectors the two forms "key" and "key=value"; of field selectors "a.b=value,c=value"."""
    key, _, value = query.get("labelSelector", "").partition("=")
    labels = obj["metadata"].get("labels", {})
    fields = [f.split("=") for f in query.get("fieldSelector", "").split(",") if f]
    return (not key or (key in labels and value in ("", labels[key]))) and all(
        field_of(obj, path) == wanted for path, wanted in fields
    )


def field_of(obj: dict, path: str) -> object:
    at: object = obj
    for key in path.split("."):
        at = at.get(key, "") if isinstance(at, dict) else ""
    return at


def shown(obj: dict, h) -> dict:
    """As it was asked for: whole, or its metadata alone."""
    if "as=PartialObjectMetadata" not in h.headers.get("Accept", ""):
        return obj
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def refusal(code: int, reason: str, message: str) -> tuple[int, str]:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return code, compact({**status, "message": message, "reason": reason, "code": code})


def merged(old: object, patch: object) -> object:
    """RFC 7386: null takes away, objects are merged, all else is replaced."""
    if not isinstance(patch, dict):
        return patch
    out = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merged(out.get(key), value)
    return out


def merged_strategically(old: dict, patch: dict) -> dict:
    """Of strategic merge patches what the operator sends: besides objects the removal of finalizers."""
    key = "$deleteFromPrimitiveList/finalizers"
    patch = json.loads(compact(patch))
    gone = patch.get("metadata", {}).pop(key, [])
    out = merged(old, patch)
    left = [f for f in out["metadata"].get("finalizers", []) if f not in gone]
    out["metadata"] = {k: v for k, v in out["metadata"].items() if k != "finalizers"}
    if left:
        out["metadata"]["finalizers"] = left
    return out


class Fake:
    """objects[plural][namespace/name]; every change gets the next resourceVersion and is kept in the
    log that watches read. hook(handler, method, plural, query) may answer itself and return True; to it
    and to count() the pods of MPIJobs are "mpi-pods".

    Reviews are answered from two tables, and counted as any request: count("POST", "tokenreviews").

        fake.tokens["t-jane"] = {"user": "jane", "groups": ["dev"], "audiences": ["hvd-page"]}
        fake.rights.add(("jane", "list", "horovodjobs", "team"))

    Of a token, only "user" is required; "uid" and "extra" may be given; without "audiences" it is an
    ordinary token. A right has the name of a user or of a group; its resource may be "pods/log"; its
    namespace "" stands for all.
    """

    def __init__(self):
        self.changed = threading.Condition()
        self.version = 100
        self.objects: dict[str, dict[str, dict]] = {p: {} for p in PLURALS}
        self.log: list[tuple[int, str, str, dict]] = []
        self.requests: list[tuple[str, str, dict]] = []
        self.logs: dict[str, bytes] = {}  # of containers that have started, by namespace/pod/container
        self.partial: set[str] = set()  # kinds of which metadata alone were asked for
        self.hook = None
        self.pruned: tuple[str, ...] = ()  # fields of the jobs' status that the CRD does not have
        self.compacted = 0  # a watch from this version or an older one has expired
        self.tokens: dict[str, dict] = {}
        self.rights: set[tuple[str, str, str, str]] = set()
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
                fake.serve(self, self.command)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

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
    def backup(self) -> tuple[int, str]:
        with self.changed:
            return self.version, compact(self.objects)

    def restore(self, saved: tuple[int, str]) -> None:
        """As of etcd: objects and versions go back, and open watches end."""
        with self.changed:
            self.version, self.objects = saved[0], json.loads(saved[1])
            self.log = [e for e in self.log if e[0] <= self.version]
        self.cut()

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
            self.log.append((self.version, plural, event, json.loads(compact(obj))))
            self.changed.notify_all()
            return obj

    def begin_deletion(self, plural: str, obj: dict) -> dict:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        obj["metadata"] |= {"deletionTimestamp": now, "deletionGracePeriodSeconds": 0}
        return self.put(plural, obj)

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
        plural = next((p for p in parts if p in PLURALS + REVIEWS), "")
        if not plural:
            self.answer(h, 404, "404 page not found")
            return
        rest = parts[parts.index(plural) + 1 :]
        body = h.rfile.read(int(h.headers.get("Content-Length") or 0))
        name = "mpi-pods" if "training." in query.get("labelSelector", "") else plural
        with self.changed:
            self.requests.append((method, name, query))
            if "PartialObjectMetadata" in h.headers.get("Accept", ""):
                self.partial.add(name)
        if self.hook and self.hook(h, method, name, query):
            return
        if plural in REVIEWS and method != "POST":
            self.answer(h, *refusal(405, "MethodNotAllowed", "the server does not allow this method"))
        elif method == "GET" and "watch" in query:
            self.watch(h, plural, query)
        elif method == "GET" and not query.get("continue", "0").isdigit():
            self.answer(h, *refusal(400, "BadRequest", "continue key is not valid"))
        elif method == "GET" and rest[1:] == ["log"]:
            self.answer(h, *self.pod_log(parts[parts.index("namespaces") + 1], rest[0], query))
        elif method == "GET" and not rest:
            with self.changed:
                found = [o for o in self.objects[plural].values() if selected(o, query)]
                first = int(query.get("continue", 0))
                after = first + int(query.get("limit", 0) or len(found))
                out = {
                    "items": [shown(o, h) for o in found[first:after]],
                    "metadata": {"resourceVersion": str(self.version)},
                }
                if "as=PartialObjectMetadataList" in h.headers.get("Accept", ""):
                    out |= {"kind": "PartialObjectMetadataList", "items": out["items"] or None}
                if after < len(found):
                    out["metadata"]["continue"] = str(after)
                text = compact(out)
            self.answer(h, 200, text)
        else:
            try:
                sent = json.loads(body) if body else {}
            except ValueError:
                self.answer(h, *refusal(400, "BadRequest", "the body is no JSON"))
                return
            if plural in REVIEWS:
                self.answer(h, *self.review(plural, sent))
                return
            self.answer(h, *self.one(method, plural, rest, sent, parts, h.headers.get("Content-Type", "")))

    def review(self, plural: str, sent: dict) -> tuple[int, str]:
        """The answer has the whole request, a token too, as that of the API server does."""
        spec = sent["spec"]
        if plural == "tokenreviews":
            if not spec.get("token"):
                return refusal(400, "BadRequest", "token is required for TokenReview in authentication")
            status = self.review_token(spec["token"], spec.get("audiences") or [AUDIENCE])
        else:
            if not spec.get("user") and not spec.get("groups"):
                return refusal(422, "Invalid", "at least one of user or group must be specified")
            status = self.review_access(spec)
        return 201, compact({**sent, "metadata": {}, "status": status})

    def review_token(self, token: str, wanted: list[str]) -> dict:
        owner = self.tokens.get(token)
        if not owner:
            return {"user": {}, "error": "invalid bearer token"}
        own = owner.get("audiences", [AUDIENCE])
        both = [a for a in wanted if a in own]
        if not both:
            error = f"token audiences {compact(own)} is invalid for the target audiences {compact(wanted)}"
            return {"user": {}, "error": f"[invalid bearer token, {error}]"}
        user = {k: owner[k] for k in ("uid", "groups", "extra") if k in owner}
        return {"authenticated": True, "user": {"username": owner["user"], **user}, "audiences": both}

    def review_access(self, spec: dict) -> dict:
        at = spec["resourceAttributes"]
        resource = "/".join(at[k] for k in ("resource", "subresource") if at.get(k))
        allowed = at.get("group", "") == GROUPS.get(at["resource"], "") and any(
            (who, at["verb"], resource, ns) in self.rights
            for who in (spec.get("user"), *spec.get("groups", []))
            for ns in {"", at.get("namespace", "")}
        )
        return {"allowed": allowed, "reason": "the table says so"} if allowed else {"allowed": False}

    def one(
        self, method: str, plural: str, rest: list[str], body: dict, parts: list[str], content: str = ""
    ):
        ns = parts[parts.index("namespaces") + 1]
        if method == "POST":
            key = f"{ns}/{body['metadata']['name']}"
            if key in self.objects[plural]:
                return refusal(
                    409, "AlreadyExists", f'{plural} "{body["metadata"]["name"]}" already exists'
                )
            if plural == "pods" and not body.get("spec", {}).get("containers"):
                return refusal(422, "Invalid", "spec.containers: Required value")
            if plural == "pods":
                body["status"] = {"phase": "Pending"}
            body["metadata"]["namespace"] = ns
            return 201, compact(self.put(plural, body))
        key = f"{ns}/{rest[0]}"
        with self.changed:
            obj = self.objects[plural].get(key)
            if obj is None:
                return refusal(404, "NotFound", f'{plural} "{rest[0]}" not found')
            if method == "PUT":
                if body["metadata"].get("resourceVersion") != obj["metadata"]["resourceVersion"]:
                    return refusal(409, "Conflict", "the object has been modified")
                body["metadata"] = {**obj["metadata"], **body["metadata"]}
                return 200, compact(self.put(plural, body))
            if method == "PATCH":
                return self.patch(plural, obj, body, rest[1:], content)
            if method == "DELETE":
                wanted = body.get("preconditions", {}).get("uid")
                if wanted not in (None, obj["metadata"]["uid"]):
                    return refusal(409, "Conflict", "the UID in the precondition is another one")
                gone = json.loads(compact(obj))
                if plural == "pods":  # told in two steps, as all of Kubernetes does
                    gone = json.loads(compact(self.begin_deletion(plural, gone)))
                    if gone["metadata"].get("finalizers"):
                        return 200, compact(gone)
                return 200, compact(self.put(plural, gone, "DELETED"))
            return 200, compact(obj)

    def pod_log(self, ns: str, name: str, query: dict) -> tuple[int, str | bytes]:
        """The last tailLines lines; of these the first limitBytes."""
        container = query.get("container", "")
        text = self.logs.get(f"{ns}/{name}/{container}")
        if f"{ns}/{name}" not in self.objects["pods"]:
            return refusal(404, "NotFound", f'pods "{name}" not found')
        if text is None:
            what = f'container "{container}" in pod "{name}"'
            return refusal(400, "BadRequest", f"{what} is waiting to start: ContainerCreating")
        lines = io.BytesIO(text).readlines()
        tail = b"".join(lines[-int(query["tailLines"]) :] if "tailLines" in query else lines)
        return 200, tail[: int(query.get("limitBytes", len(tail)))]

    def patch(self, plural: str, obj: dict, body: dict, sub: list[str], content: str):
        is_strategic = content.startswith("application/strategic-merge-patch")  # not for custom resources
        if not content.startswith("application/merge-patch") and not (is_strategic and plural == "pods"):
            return refusal(415, "UnsupportedMediaType", f"{content} is no patch of {plural}")
        for key, code, reason in (("resourceVersion", 409, "Conflict"), ("uid", 422, "Invalid")):
            if body.get("metadata", {}).get(key, obj["metadata"][key]) != obj["metadata"][key]:
                return refusal(code, reason, f"metadata.{key} is another one")
        out = (merged_strategically if is_strategic else merged)(obj, body)
        kept = "status" if sub else "spec"  # each has its own address; the other is not looked at
        if plural in ("horovodjobs", "mpijobs", "pods", "jobs"):
            out = {**obj, "metadata": (obj if sub else out)["metadata"], kept: out.get(kept, {})}
        if plural == "horovodjobs" and "status" in out:
            out["status"] = {k: v for k, v in out["status"].items() if k not in self.pruned}
        if {k: v for k, v in out.items() if v} == {k: v for k, v in obj.items() if v}:
            return 200, compact(obj)  # nothing changes: no new version, no event
        if "deletionTimestamp" in out["metadata"] and not out["metadata"].get("finalizers"):
            return 200, compact(self.put(plural, json.loads(json.dumps(out)), "DELETED"))
        return 200, compact(self.put(plural, json.loads(json.dumps(out))))

    @staticmethod
    def answer(h, code: int, text: str | bytes, **headers: str) -> None:
        data = text if isinstance(text, bytes) else text.encode()
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
        cls.chunk(h, compact({"type": kind, "object": obj}).encode() + b"\n")

    def watch(self, h, plural: str, query: dict) -> None:
        since = int(query["resourceVersion"])
        self.begin_watch(h)
        h.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if 0 < since <= self.compacted:
            text = refusal(410, "Expired", f"too old resource version: {since}")[1]
            self.event(h, "ERROR", json.loads(text))
            self.chunk(h, b"")
            return
        end = time.monotonic() + float(query.get("timeoutSeconds", "3600"))
        mark = end - 2 if query.get("allowWatchBookmarks") else math.inf
        while not self.stopping and time.monotonic() < end:
            with self.changed:
                news = [e for e in self.log if e[0] > since and e[1] == plural]
                now = self.version
                if not news and time.monotonic() < mark:
                    self.changed.wait(max(0, min(1, min(end, mark) - time.monotonic())))
                    continue
            for version, _, kind, obj in news:
                if selected(obj, query):
                    self.event(h, kind, shown(obj, h))
                since = version
            if time.monotonic() >= mark and now <= int(query["resourceVersion"]):
                mark = math.inf  # no bookmark without a newer version
            if time.monotonic() >= mark:
                self.event(h, "BOOKMARK", {"kind": plural, "metadata": {"resourceVersion": str(now)}})
                mark = math.inf
        if not self.stopping:
            self.chunk(h, b"")
