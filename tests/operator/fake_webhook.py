# SPDX-License-Identifier: Apache-2.0
"""The webhook of hvd-operator: what a receiver gets, and what it may do. Part of fake_test.py."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from api import ended, expect, wait
from fake_access import EXEC, Access, certificate
from fake_world import BIN, OPEN, cut_connection, fetch, free_port, mpijob, suite

MONITORING = Path(__file__).resolve().parents[2] / "operator/reference/monitoring.md"
KEY = bytes(range(200, 232))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
PATH = "/in?token=of-the-url"
PLUG_IN = """#!/bin/sh
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"of-the-cluster"}}'
"""


class Receiver:
    """Keeps each request in the order of arrival. answer(handler, message) may answer itself and return True;
    otherwise the answer is 204."""

    def __init__(self, answer=None, port: int = 0, tls: ssl.SSLContext | None = None):
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.clients: list[dict | None] = []  # certificates
        self.wrong: list[str] = []
        self.answer = answer
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                receiver.receive(self)

            do_GET = do_PUT = do_POST

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):  # a connection that a test cut
                pass

        self.server = Server(("127.0.0.1", port), Handler)
        if tls:
            self.server.socket = tls.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def receive(self, h) -> None:
        body = h.rfile.read(int(h.headers["Content-Length"]))
        headers = {k.lower(): v for k, v in h.headers.items()}
        if isinstance(h.connection, ssl.SSLSocket):
            self.clients.append(h.connection.getpeercert())
        try:
            self.check(h, headers, body)
        except (AssertionError, KeyError, ValueError) as e:
            self.wrong.append(f"{h.command} {h.path} {headers} {body!r}: {e!r}")
        self.requests.append((h.path, headers, body))
        if not (self.answer and self.answer(h, json.loads(body))):
            reply(h, 204)

    @staticmethod
    def check(h, headers: dict[str, str], body: bytes) -> None:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        digest = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        expect(headers["webhook-signature"] == f"v1,{digest}", "signature")
        expect(abs(time.time() - int(headers["webhook-timestamp"])) < 60, "the time of the attempt")
        expect(headers["content-type"] == "application/json", "type")
        expect((h.command, h.path) == ("POST", PATH), "request")
        expect("." not in headers["webhook-id"], "id")
        seen = str(headers) + body.decode()
        for word in ("authorization", "cookie", "of-the-cluster", "of-the-url", "impersonate"):
            expect(word not in seen.lower(), f"no {word}")

    def messages(self) -> list[dict]:
        return [json.loads(body) for _, _, body in self.requests]

    def types(self, name: str = "j0") -> list[str]:
        return [m["type"] for m in self.messages() if m["data"]["name"] == name]

    def ids(self) -> list[str]:
        return [headers["webhook-id"] for _, headers, _ in self.requests]

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        expect(not self.wrong, "each request is as it must be", *self.wrong)


def reply(h, code: int, **headers: str) -> bool:
    h.send_response(code)
    for name, value in headers.items():
        h.send_header(name.replace("_", "-"), value)
    h.send_header("Content-Length", "0")
    h.end_headers()
    return True


def answers(*codes: int):
    """For the first requests, then 204."""
    left = list(codes)
    return lambda h, _: bool(left) and reply(h, left.pop(0))


class Hooked(Access):
    """An operator with a webhook, whose receiver ends with it. Its credentials are a plug-in's and a certificate."""

    def __init__(self, answer=None, receiver: Receiver | None = None, url: str = "", hook=None, extra=()):
        self.port = free_port()
        self.receiver = receiver or Receiver(answer)
        self.folder = Path(tempfile.mkdtemp(prefix="op-hook-"))
        (self.folder / "url").write_text((url or self.receiver.url) + PATH + "\n")
        (self.folder / "secret").write_text(SECRET + "\n")
        extra = ["--http-port", str(self.port), "--webhook-dir", str(self.folder), *OPEN, *extra]
        super().__init__(f"{{exec: {EXEC}}}", hook=hook, files={"get": PLUG_IN}, extra=extra)

    def __exit__(self, kind, *rest):
        log = self.log()
        try:
            super().__exit__(kind, *rest)
            self.receiver.stop()
        finally:
            shutil.rmtree(self.folder)
        for word in ("of-the-url", SECRET, base64.b64encode(KEY).decode(), "of-the-cluster"):
            expect(word not in log, f"no {word} in the log", log)

    def serves_job(self, name: str = "j0") -> None:
        """By way of Pending, so that there are two messages."""
        wait(f"{name} is Pending", lambda: self.state(name) == "Pending")
        super().serves_job(name)

    def metric(self, name: str) -> int:
        found = re.search(rf"^hvd_operator_webhook_{re.escape(name)} (\d+)$", self.page(), re.MULTILINE)
        return int(found[1]) if found else -1

    def page(self) -> str:
        return wait("metrics", lambda: fetch(self.port, "/metrics")[1])

    def ended(self, result: str) -> int:
        return self.metric(f'messages_total{{result="{result}"}}')


PENDING, RUNNING, SUCCEEDED, FAILED = "job.pending", "job.running", "job.succeeded", "job.failed"


@suite.test
def a_receiver_gets_each_change_of_a_job_signed_and_in_order() -> None:
    with Hooked() as w:
        w.serves_job()
        for i in range(2):
            w.set_pod(f"j0-worker-{i}", phase="Succeeded")
        wait("the last one", lambda: SUCCEEDED in w.receiver.types())
        expect(w.receiver.types() == [PENDING, RUNNING, SUCCEEDED], "each once", w.receiver.messages())
        expect(len(set(w.receiver.ids())) == 3, "each has an id", str(w.receiver.ids()))
        uid = w.get("horovodjobs", "j0")["metadata"]["uid"]
        for message, old in zip(w.receiver.messages(), (None, "Pending", "Running")):
            data = message["data"]
            what = {k: data[k] for k in ("kind", "namespace", "name", "uid", "restarts")}
            expect(
                what == {"kind": "HorovodJob", "namespace": "ns", "name": "j0", "uid": uid, "restarts": 0},
                "the job",
                what,
            )
            expect(
                data.get("from") == old and message["type"] == f"job.{data['to'].lower()}", "states", data
            )
            expect(
                re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", message["timestamp"]) is not None, "time"
            )
        expect(data["workers"] == w.get("horovodjobs", "j0")["status"]["workers"], "workers", data)
        w.fake.put("mpijobs", mpijob("m0"))
        wait("another kind", lambda: w.receiver.types("m0"))
        expect(w.receiver.messages()[-1]["data"]["kind"] == "MPIJob", "kind", w.receiver.messages())
        wait("delivered", lambda: w.ended("delivered") == 4)
        expect(w.metric("queue") == w.metric("failed_attempts_total") == 0, "metrics", w.page())


@suite.test
def a_job_cannot_write_a_message_of_its_own() -> None:
    text = '"},"type":"job.succeeded","x":"\\\u2028é'
    with Hooked() as w:
        w.serves_job()
        w.set_pod("j0-worker-0", phase="Failed", containerStatuses=[{"name": "c", "state": ended(3, text)}])
        wait("it has failed", lambda: FAILED in w.receiver.types())
        message = w.receiver.messages()[-1]
        expect(message["type"] == FAILED and message["data"]["to"] == "Failed", "its state", message)
        expect(message["data"]["message"].endswith(text), "its text", message)
        expect(set(message) == {"type", "timestamp", "data"}, "nothing else", message)


@suite.test
def a_message_is_sent_again_until_the_receiver_takes_it() -> None:
    with Hooked(answers(500, 503, 429)) as w:
        w.serves_job()
        wait("the next one", lambda: RUNNING in w.receiver.types())
        expect(w.receiver.types() == [PENDING] * 4 + [RUNNING], "in order", w.receiver.messages())
        expect(len(set(w.receiver.ids())) == 2, "under one id", str(w.receiver.ids()))
        expect(len({body for _, _, body in w.receiver.requests}) == 2, "and with one body")
        wait("counted", lambda: w.ended("delivered") == 2)
        expect(w.metric("failed_attempts_total") == 3, "failed attempts", w.page())
        log = w.log()
        expect(log.count("the receiver fails") == log.count("accepts messages again") == 1, "the log", log)


@suite.test
def a_receiver_may_be_late_and_ask_for_time() -> None:
    """Nobody listens at first. Then it asks for three seconds, more than the first delay."""
    port = free_port()
    times: list[float] = []

    def busy(h, _) -> bool:
        times.append(time.monotonic())
        return len(times) == 1 and reply(h, 503, Retry_After="3")

    unused = Receiver()
    with Hooked(receiver=unused, url=f"http://127.0.0.1:{port}") as w:
        w.serves_job()
        wait("it is logged", lambda: "the receiver fails" in w.log())
        expect(f"http://127.0.0.1:{port}: " in w.log(), "with its address", w.log())
        unused.stop()
        w.receiver = Receiver(busy, port)
        wait("all", lambda: w.receiver.types() == [PENDING, PENDING, RUNNING], 240)
        expect(times[1] - times[0] >= 2.9, "after that time", str(times))


@suite.test
def a_refused_message_is_not_sent_again() -> None:
    other = Receiver()

    def refuse(h, message) -> bool:
        if message["type"] == PENDING:
            return reply(h, 401)
        return message["data"]["name"] == "j0" and reply(h, 307, Location=other.url + PATH)

    with Hooked(refuse) as w:
        w.serves_job()
        w.job_runs("j1")
        wait("what is taken", lambda: RUNNING in w.receiver.types("j1"))
        wait("both are refused", lambda: w.ended("refused") == 3)
        expect(w.receiver.types() == [PENDING, RUNNING], "each was sent once", w.receiver.messages())
        expect(not other.requests, "no redirect was followed", str(other.requests))
        expect('cause="HTTP 401"' in w.log() and 'cause="HTTP 307"' in w.log(), "the log", w.log())
    other.stop()


@suite.test
def a_receiver_that_never_answers_delays_no_job() -> None:
    stop = threading.Event()
    with Hooked(lambda h, _: stop.wait(300) and reply(h, 204)) as w:
        start = time.monotonic()
        for i in range(1, 7):
            w.job_runs(f"j{i}")
        served = time.monotonic() - start
        expect(len(w.receiver.requests) == 4, "four wait at once", str(w.receiver.ids()))
        wait("an attempt ends", lambda: w.metric("failed_attempts_total") > 0)
        expect(served < time.monotonic() - start, "jobs were served before that")
        expect(w.metric("queue") >= 12, "and their messages wait", w.page())
        stop.set()
        for i in range(1, 7):
            wait(f"j{i}", lambda i=i: RUNNING in w.receiver.types(f"j{i}"), 240)


@suite.test
def a_write_whose_answer_is_lost_is_announced_once() -> None:
    lost = []

    def hook(w, h, method, plural, query):
        if method == "PATCH" and "/j0/status" in h.path and not lost:
            lost.append(h)
            send = w.fake.answer
            w.fake.answer = lambda to, *a, **k: cut_connection(h) if to is h else send(to, *a, **k)
        return False

    with Hooked(hook=hook) as w:
        w.serves_job()
        wait("both", lambda: RUNNING in w.receiver.types())
        expect("sync failed" in w.log(), "an answer was lost", w.log())
        expect(w.receiver.types() == [PENDING, RUNNING], "each once", w.receiver.messages())


@suite.test
def a_lost_lead_drops_what_was_not_delivered() -> None:
    away = []

    def hook(w, h, method, plural, query):
        if plural != "leases" or not away:
            return False
        w.fake.answer(h, 503, '{"message": "away"}')
        return True

    times = ["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s"]
    lease = ["--leader-elect", "--lock-namespace=ns", "--leader-elect-retry-period=200ms", *times]
    with Hooked(lambda h, _: bool(away) or reply(h, 500), hook=hook, extra=lease) as w:
        w.serves_job()
        wait("failed attempts", lambda: w.metric("failed_attempts_total") > 0)
        away.append(1)
        wait("it is logged", lambda: "another process leads" in w.log())
        expect(w.metric("queue") == 0 and w.ended("dropped") == 2, "dropped", w.page())


@suite.test
def a_receiver_behind_tls_is_verified_and_gets_no_certificate() -> None:
    """The Secret's CA is used when it appears, without a restart."""
    folder = Path(tempfile.mkdtemp(prefix="op-hook-tls-"))
    try:
        certificate(folder, "one")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(folder / "one.crt", folder / "one.key")
        tls.load_verify_locations(folder / "one.crt")
        tls.verify_mode = ssl.CERT_OPTIONAL

        class Certified(Hooked):
            def kubeconfig(self) -> str:
                pair = f"{{client-certificate: {folder}/one.crt, client-key: {folder}/one.key}}"
                self.user = pair
                return super().kubeconfig()

        with Certified(receiver=Receiver(tls=tls)) as w:
            w.serves_job()
            wait("it is not trusted", lambda: "certificate" in w.log())
            expect(not w.receiver.requests, "and gets nothing", str(w.receiver.requests))
            shutil.copy(folder / "one.crt", w.folder / "ca.crt")
            wait("all", lambda: w.receiver.types() == [PENDING, RUNNING])
            expect(not any(w.receiver.clients), "without a certificate", str(w.receiver.clients))
    finally:
        shutil.rmtree(folder)


@suite.test
def a_wrong_folder_of_the_webhook_is_refused_with_one_sentence() -> None:
    kubeconfig = (
        "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\n"
        "clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\n"
    )
    good = {"url": f"https://h.example{PATH}", "secret": SECRET}
    rows = [
        ({"url": None}, "cannot open DIR/url: No such file or directory"),
        ({"secret": None}, "cannot open DIR/secret: No such file or directory"),
        ({"url": f"ftp://h{PATH}"}, "DIR/url: must start with https:// or http://"),
        ({"url": f"https://me:of-the-url@h{PATH}"}, "DIR/url: must have a host"),
        ({"url": "https://h/" + "x" * 5000}, "DIR/url is larger than 4096 bytes"),
        ({"secret": "of-the-url"}, "DIR/secret: the key has 10 bytes; 24 to 64 are allowed"),
        ({"secret": "whsec_of-the-url"}, "DIR/secret: no base64 after whsec_"),
    ]
    for change, sentence in rows:
        with tempfile.TemporaryDirectory(prefix="op-hook-") as folder:
            (Path(folder) / "kubeconfig").write_text(kubeconfig)
            for name, text in {**good, **change}.items():
                if text is not None:
                    (Path(folder) / name).write_text(text)
            args = ["--kubeconfig", f"{folder}/kubeconfig", "--http-port=0", "--webhook-dir", folder]
            done = subprocess.run(
                [str(BIN / "hvd-operator"), *args], capture_output=True, text=True, timeout=60
            )
        said = f"--webhook-dir: {sentence.replace('DIR', folder)}"
        log = done.stdout + done.stderr
        expect(done.returncode == 1 and said in log and log.count("\n") == 1, sentence, log)
        expect("of-the-url" not in log, "no secret", log)


@suite.test
def the_manual_s_receiver_works() -> None:
    script = re.search(r"```python\n(.*?)```", MONITORING.read_text().split("## Webhook")[1], re.DOTALL)
    expect(script is not None, "there is one")
    port, idle = free_port(), Receiver()
    with Hooked(receiver=idle, url=f"http://127.0.0.1:{port}") as w:
        with (w.folder / "out").open("w") as out:
            example = subprocess.Popen(
                [sys.executable, "-c", script[1], str(w.folder / "secret"), str(port)], stdout=out
            )
        try:
            w.serves_job()

            def seen() -> list[dict]:
                return [json.loads(line) for line in (w.folder / "out").read_text().splitlines()]

            wait("both are printed", lambda: len(seen()) == 2)
            expect([d["to"] for d in seen()] == ["Pending", "Running"], "the states", seen())
            wait("delivered", lambda: w.ended("delivered") == 2)
            (w.folder / "secret").write_bytes(os.urandom(32))
            w.job_runs("j1")
            wait("another key is refused", lambda: w.ended("refused") == 2)
            expect(len(seen()) == 2, "and not printed", seen())
        finally:
            example.kill()
            example.wait(60)
