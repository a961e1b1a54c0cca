# SPDX-License-Identifier: Apache-2.0
"""The operator's status page: rights, rows, streams, one job, clients that misbehave. Part of fake_test.py."""

from __future__ import annotations

import contextlib
import copy
import http.client
import itertools
import json
import resource
import socket
import threading
import time
from pathlib import Path

from agent_fake import rank
from api import expect, wait
from fake_ask import FAST, Asked
from fake_elect import Rivals
from fake_world import World, fetch, free_port, launched, suite
from page_client import PageClient, Stream

JANE = "token-of-jane"  # may list in namespace ns
ROOT = "token-of-root"  # may read everything


class Paged(PageClient, Asked):
    """With a page, and two viewers."""

    def __init__(self, *args, extra: list[str] | None = None, port: int = 0, **kw):
        self.page_port, self.metrics_port = free_port(), port or free_port()
        options = [*FAST, "--page", str(self.page_port), "--page-check-interval", "1s", *(extra or [])]
        super().__init__(*args, extra=options, port=self.metrics_port, **kw)
        self.fake.tokens[JANE] = {"user": "jane", "groups": ["team"], "audiences": ["hvd-page"]}
        self.fake.tokens[ROOT] = {"user": "root"}
        for verb, plural in (
            ("list", "horovodjobs"),
            ("get", "horovodjobs"),
            ("list", "events"),
            ("get", "pods/log"),
        ):
            self.fake.rights.add(("jane", verb, plural, "ns"))
            self.fake.rights.add(("root", verb, plural, ""))
        for verb in ("list", "get"):
            self.fake.rights.add(("root", verb, "mpijobs", ""))
        wait("the page is served", lambda: self.page("/")[0] == 200 and self.get_jobs()[0] == 200)

    def api(self, path: str, token: str | None = ROOT) -> tuple[int, dict]:
        return super().api(path, token)

    def connections(self) -> float:
        rows = fetch(self.metrics_port, "/metrics")[1].splitlines()
        return next(float(r.split()[1]) for r in rows if r.startswith("hvd_operator_page_connections "))

    def get_jobs(self, token: str | None = ROOT) -> tuple[int, dict]:
        return self.api("/jobs", token)

    def rows(self) -> dict[str, dict]:
        return {r["name"]: r for r in self.get_jobs()[1]["jobs"]}


# --- rights ---------------------------------------------------------------------------


@suite.test
def the_page_is_off_without_its_option() -> None:
    port = free_port()
    with World(port=port, extra=[]) as w:
        wait("health", lambda: fetch(port, "/healthz")[0] == 200)
        expect(fetch(port, "/api/v1/jobs")[0] == 404, "no page on the port of the metrics")
        expect("status page" not in w.log(), "not served", w.log())


@suite.test
def the_static_files_need_no_token_and_forbid_other_sources() -> None:
    with Paged() as w:
        for path, kind in (("/", "text/html"), ("/page.js", "javascript"), ("/page.css", "text/css")):
            status, headers, body = w.page(path)
            expect(status == 200 and kind in headers["Content-Type"], path, status, headers)
            policy = headers["Content-Security-Policy"]
            expect("default-src 'none'" in policy and "unsafe" not in policy, "strict policy", policy)
            expect(headers["X-Content-Type-Options"] == "nosniff", "nosniff", headers)
            expect("<script>" not in body, "no inline script", path)
            again = w.page(path, **{"If-None-Match": headers["ETag"]})
            expect(again[0] == 304 and again[2] == "", "not sent twice", again)
        expect(w.page("/../page.js")[0] == 404 and w.page("/x")[0] == 404, "nothing else")


@suite.test
def data_needs_a_token_and_a_right() -> None:
    with Paged() as w:
        for path in ("/jobs", "/watch", "/jobs/horovodjobs/ns/j0", "/jobs/horovodjobs/ns/j0/log?rank=0"):
            for token in (None, "", "wrong", "a b", "x" * 20000):
                status, answer = w.api(path, token)
                expect(
                    status in (401, 431) and (status == 431 or answer["error"]), path, token, status, answer
                )
        status, answer = w.get_jobs(JANE)
        expect(status == 403, "jane may not list all", status, answer)
        expect("jane" in answer["error"] and "horovodjobs" in answer["error"], "who and what", answer)
        status, answer = w.api("/jobs?namespace=ns", JANE)
        expect(status == 200 and answer["kinds"] == ["horovodjobs"], "of her namespace", status, answer)
        expect([r["name"] for r in answer["jobs"]] == ["j0"], "her job", answer)
        status, answer = w.api("/jobs/horovodjobs/other/j0", JANE)
        expect(status == 403 and "other" in answer["error"], "not of others", status, answer)
        expect(w.get_jobs()[1]["kinds"] == ["horovodjobs", "mpijobs"], "root sees both kinds")
        log = w.log()
        expect(JANE not in log and ROOT not in log, "no token in the log", log)


@suite.test
def a_connection_has_no_memory_of_tokens() -> None:
    with Paged() as w, contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", w.page_port, timeout=60)
    ) as c:
        for token, status in ((ROOT, 200), (None, 401), (JANE, 403), (ROOT, 200)):
            c.request("GET", "/api/v1/jobs", headers={"Authorization": f"Bearer {token}"} if token else {})
            r = c.getresponse()
            r.read()
            expect(r.status == status, "the right of this request's token", token, r.status)


@suite.test
def nothing_can_be_changed() -> None:
    with Paged() as w:
        before = json.dumps(w.get("horovodjobs", "j0")["spec"])
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            status, headers, body = w.page("/api/v1/jobs/horovodjobs/ns/j0", ROOT, method)
            expect(status == 405 and headers["Allow"] == "GET", method, status, headers, body)
        expect(json.dumps(w.get("horovodjobs", "j0")["spec"]) == before, "unchanged")


@suite.test
def bad_requests_get_one_sentence() -> None:
    with Paged() as w:
        for path, code in (
            ("/jobs/pods/ns/j0", 404),
            ("/jobs/horovodjobs/ns/none", 404),
            ("/jobs/horovodjobs/ns/J_0", 400),
            ("/jobs/horovodjobs/ns/j0/log?rank=x", 400),
            ("/jobs/horovodjobs/ns/j0/log?rank=0&tail=0", 400),
            ("/jobs/horovodjobs/ns/j0/log?lines=5", 400),
            ("/jobs?namespace=..%2Fx", 400),
            ("/nothing", 404),
        ):
            status, answer = w.api(path)
            expect(status == code and answer["error"] and "\n" not in answer["error"], path, status, answer)


@suite.test
def a_token_is_reviewed_once_for_many_requests() -> None:
    with Paged(extra=["--page-check-interval", "60s"]) as w:
        w.get_jobs()
        before = w.fake.count("POST", "tokenreviews")
        for _ in range(20):
            expect(w.get_jobs()[0] == 200, "served")
        expect(w.fake.count("POST", "tokenreviews") == before, "no more reviews", before)


# --- rows and streams -------------------------------------------------------------------


@suite.test
def a_stream_has_all_jobs_then_what_changes() -> None:
    begin = time.monotonic()
    with Paged(jobs=2) as w, Stream(w, ROOT) as s:
        expect(s.answer.headers["Content-Type"] == "text/event-stream", "a stream", s.answer.headers)
        s.wait("all", lambda e, d: e == "jobs" and {r["name"] for r in d["jobs"]} == {"j0", "j1"})
        w.run_pods()
        s.wait(
            "j0 runs",
            lambda e, d: (
                e == "change" and any(r["name"] == "j0" and r["state"] == "Running" for r in d["jobs"])
            ),
        )
        w.fake.put("horovodjobs", w.job("j2"))
        s.wait("j2", lambda e, d: e == "change" and any(r["name"] == "j2" for r in d["jobs"]))
        uid = w.get("horovodjobs", "j1")["metadata"]["uid"]
        w.delete("horovodjobs", "j1")
        s.wait("j1 is gone", lambda e, d: e == "change" and uid in d.get("gone", []))
        expect(set(w.rows()) == {"j0", "j2"}, "the same as a new list", w.rows())
        expect(s.pings <= (time.monotonic() - begin) / 15, "a ping only after 15 s of silence", s.pings)


@suite.test
def a_stream_of_a_namespace_has_no_other_jobs() -> None:
    with Paged() as w, Stream(w, JANE, "?namespace=ns") as s:
        other = w.job("secret")
        other["metadata"]["namespace"] = "other"
        w.fake.put("horovodjobs", other)
        w.fake.put("horovodjobs", w.job("j1"))
        s.wait("j1", lambda e, d: e == "change" and any(r["name"] == "j1" for r in d["jobs"]))
        expect("secret" not in json.dumps(s.events), "nothing of others", s.events)
        expect(any(r["name"] == "secret" for r in w.get_jobs()[1]["jobs"]), "root sees it")


@suite.test
def a_stream_ends_when_its_right_is_taken_away() -> None:
    with Paged() as w, Stream(w, JANE, "?namespace=ns") as s:
        s.wait("all", lambda e, _: e == "jobs")
        w.fake.rights.discard(("jane", "list", "horovodjobs", "ns"))
        s.wait("the end", lambda e, d: e == "end" and "jane" in d["error"])
        wait("closed", lambda: s.is_over)
        with Stream(w, ROOT) as t:
            t.wait("all", lambda e, _: e == "jobs")
            del w.fake.tokens[ROOT]
            t.wait("the end", lambda e, _: e == "end")


@suite.test
def a_stream_ends_when_its_rights_cannot_be_checked_for_long() -> None:
    """Else a viewer that uses up its own budget of reviews would keep a right that was taken away."""
    refuses = threading.Event()

    def hook(w, h, _method: str, plural: str, _query: dict) -> bool:
        if plural != "subjectaccessreviews" or not refuses.is_set():
            return False
        w.fake.answer(h, 500, "{}")
        return True

    with Paged(hook=hook) as w, Stream(w, ROOT) as s:
        s.wait("all", lambda e, _: e == "jobs")
        refuses.set()
        s.wait("the end", lambda e, d: e == "end" and "could not be checked" in d["error"])
        wait("closed", lambda: s.is_over)


@suite.test
def a_row_shows_progress_and_a_stall() -> None:
    with Paged() as w:
        w.run_pods()
        w.answer(step=1200, total_steps=5000, epoch=2, steps_per_s=2.5)
        wait("progress", lambda: w.rows()["j0"].get("progress", {}).get("step") == 1200)
        row = w.rows()["j0"]
        expect(row["state"] == "Running" and row["workers"] == "0/2" and row["ranks"] == 2, "row", row)
        expect(not row.get("stalled"), "no stall", row)


# --- one job ------------------------------------------------------------------------------


@suite.test
def a_job_has_pods_report_and_history() -> None:
    with Paged() as w:
        w.run_pods()
        w.answer(step=10, total_steps=100, steps_per_s=2.5)
        path = "/jobs/horovodjobs/ns/j0"
        wait("a report", lambda: w.api(path)[1].get("report"))
        detail = w.api(path)[1]
        expect([p["name"] for p in detail["pods"]] == ["j0-worker-0", "j0-worker-1"], "pods", detail)
        expect(detail["pods"][1]["ranks"] == "1", "its rank", detail["pods"])
        expect(detail["access"] == {"events": True, "log": True}, "rights", detail["access"])
        wait("history", lambda: 2.5 in w.api(path)[1].get("history", {}).get("stepsPerSecond", []))
        expect(any(c["type"] == "Running" for c in detail["conditions"]), "conditions", detail)
        w.fake.rights.discard(("root", "get", "pods/log", ""))
        wait("rights", lambda: w.api(path)[1]["access"] == {"events": True, "log": False})
        expect(w.api(path + "/log?rank=0")[0] == 403, "no log")


@suite.test
def a_job_shows_events_and_the_log_of_a_rank() -> None:
    with Paged() as w:
        w.run_pods()
        wait("running", lambda: w.state() == "Running")
        path = "/jobs/horovodjobs/ns/j0"
        wait("events", lambda: w.api(path + "/events")[1].get("events"))
        reasons = [e["reason"] for e in w.api(path + "/events")[1]["events"]]
        expect("JobRunning" in reasons, "an Event", reasons)
        w.fake.logs["ns/j0-worker-1/c"] = b"agent\n[1]<stdout>:one\n[1]<stdout>:<b>two</b>\n"
        status, answer = w.api(path + "/log?rank=1&tail=5")
        expect(status == 200 and answer["pod"] == "j0-worker-1", "pod", status, answer)
        expect(answer["text"].splitlines()[-2:] == ["one", "<b>two</b>"], "lines", answer)
        status, answer = w.api(path + "/log?rank=7")
        expect(status == 404 and "7" in answer["error"], "no such rank", status, answer)


@suite.test
def one_list_of_events_is_open_at_a_time() -> None:
    with Paged(jobs=2) as w:
        w.run_pods()
        w.fake.logs["ns/j0-worker-0/c"] = b"[0]<stdout>:one\n"
        path, may_end = "/jobs/horovodjobs/ns/", threading.Event()
        lists: list[dict] = []
        answers: list[int] = []

        def hook(h, method: str, plural: str, query: dict) -> bool:
            if method == "GET" and plural == "events":
                lists.append(query)
                may_end.wait(60)
            return False

        w.fake.hook = hook
        viewers = [
            threading.Thread(target=lambda j=j: answers.append(w.api(f"{path}{j}/events")[0]))
            for j in ("j0", "j1")
        ]
        for v in viewers:
            v.start()
        wait("both wait", lambda: w.connections() >= 2 and lists)
        expect(w.api(path + "j0/log?rank=0")[0] == 200, "a log does not wait for them")
        expect(len(lists) == 1, "one list", lists)
        may_end.set()
        for v in viewers:
            v.join(60)
        expect(answers == [200, 200], "both are answered", answers)


@suite.test
def a_launcher_has_a_log_but_no_agent() -> None:
    with Paged(jobs=0) as w:
        w.fake.put("horovodjobs", launched("l"))
        wait("row", lambda: "l" in w.rows())
        path = "/jobs/horovodjobs/ns/l"
        status, answer = w.api(path + "/stacks")
        expect(status in (404, 409) and answer["error"], "no agent", status, answer)
        w.run_pods(name="l")
        wait("the launcher", lambda: "ns/l-launcher-0" in w.fake.objects["pods"])
        earlier = copy.deepcopy(w.get("pods", "l-launcher-0"))  # of an earlier job of that name
        earlier["metadata"] |= {
            "name": "l-launcher-x",
            "uid": "x",
            "creationTimestamp": "2100-01-01T00:00:00Z",
        }
        earlier["metadata"]["ownerReferences"][0]["uid"] = "earlier"
        w.fake.put("pods", earlier)
        w.set_pod("l-launcher-0", phase="Running", podIP="10.1.2.3")

        def pods() -> dict[str, dict]:
            return {p["name"]: p for p in w.api(path)[1]["pods"]}

        wait("what came after it", lambda: pods().get("l-launcher-0", {}).get("ip") == "10.1.2.3")
        expect(sorted(pods()) == ["l-launcher-0", "l-worker-0", "l-worker-1"], "its own pods", pods())
        for name in ("l-launcher-0", "l-launcher-x"):
            w.fake.logs[f"ns/{name}/c"] = name.encode()
        status, answer = w.api(path + "/log")
        expect(status == 200 and answer["text"] == "l-launcher-0\n", "its own log", status, answer)


@suite.test
def ranks_and_stacks_come_from_the_agent() -> None:
    with Paged() as w:
        w.run_pods()
        w.answer(step=1)
        path = "/jobs/horovodjobs/ns/j0"
        wait("a report", lambda: w.api(path)[1].get("report"))
        w.agent.stacks["j0"] = b"rank 0: <b>read_batch</b>\n"
        w.agent.ranks["j0"] = [rank(0, steps=10), rank(1, steps=9)]
        status, answer = w.api(path + "/stacks")
        expect(status == 200 and answer["text"] == "rank 0: <b>read_batch</b>\n", "stacks", status, answer)
        status, answer = w.api(path + "/ranks")
        expect(status == 200 and [r["rank"] for r in answer["ranks"]] == [0, 1], "ranks", status, answer)


# --- clients and operators ------------------------------------------------------------------


@suite.test
def idle_and_slow_clients_hold_no_place() -> None:
    with Paged() as w:
        idle = []
        for _ in range(1100):
            with contextlib.suppress(OSError):
                idle.append(socket.create_connection(("127.0.0.1", w.page_port), 10))
        expect(w.get_jobs()[0] == 200, "served beside idle connections")
        idle[500].setblocking(False)
        with contextlib.suppress(BlockingIOError):
            expect(idle[500].recv(1) != b"", "served before they were ended")
        half = socket.create_connection(("127.0.0.1", w.page_port), 10)
        half.sendall(b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nAuthor")
        expect(w.get_jobs()[0] == 200, "served beside half a request")
        half.settimeout(60)
        with contextlib.suppress(ConnectionResetError):
            expect(half.recv(1) == b"", "ended without an answer")
        for c in idle:
            c.close()


@suite.test
def one_viewer_does_not_take_all_streams() -> None:
    with Paged(extra=["--page-check-interval", "1h"]) as w:

        def watch() -> socket.socket:
            s = socket.create_connection(("127.0.0.1", w.page_port), 60)
            s.sendall(
                f"GET /api/v1/watch?namespace=ns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {JANE}\r\n\r\n".encode()
            )
            expect(s.recv(12) == b"HTTP/1.1 200", "a stream")
            return s

        janes = [watch() for _ in range(500)]
        status, answer = w.api("/watch?namespace=ns", JANE)
        expect(status == 429 and "500 streams" in answer["error"], "no place for more", status, answer)
        with Stream(w, ROOT) as s:
            s.wait("a place for another viewer", lambda name, data: name == "jobs" and data["jobs"])
            text = b""
            while b"has most" not in text and (data := janes[0].recv(65536)):
                text += data
            expect(b"event: end" in text, "the oldest ends", text[-300:])
            expect(w.api("/watch?namespace=ns", JANE)[0] == 429, "it gets no other place")
            expect(not s.is_over, "the other viewer keeps its own")
        for s in janes:
            s.close()


class FewFiles(Paged):
    """The operator may open 400 descriptors."""

    def begin(self, env=None):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
        try:
            return super().begin(env)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@suite.test
def connections_of_viewers_leave_descriptors_to_the_operator() -> None:
    port, most, is_over = free_port(), [0], threading.Event()
    with FewFiles(port=port) as w, contextlib.ExitStack() as idle:
        files = Path(f"/proc/{w.operator.process.pid}/fd")

        def look() -> None:
            while not is_over.wait(0.01):
                most[0] = max(most[0], len(list(files.iterdir())))

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        for _ in range(600):
            idle.enter_context(socket.create_connection(("127.0.0.1", w.page_port), 60))
        expect(fetch(port, "/healthz")[0] == 200, "healthy")
        is_over.set()
        looking.join()
        expect(most[0] < 300, "of 400 descriptors many are free", most)
        expect(w.get_jobs()[0] == 200, "served")
        w.fake.cut()  # the client needs new connections
        w.job_runs("j1")


@suite.test
def a_viewer_that_does_not_read_is_ended() -> None:
    port = free_port()
    with Paged(jobs=60, port=port) as w:

        def streams() -> int:
            rows = fetch(port, "/metrics")[1].splitlines()
            return next(int(r.split()[1]) for r in rows if r.startswith("hvd_operator_page_streams"))

        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", w.page_port))
        slow.sendall(
            f"GET /api/v1/watch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ROOT}\r\n\r\n".encode()
        )
        with Stream(w, ROOT) as s:
            wait("two streams", lambda: streams() == 2)
            for n in itertools.count():
                for i in range(60):  # together 50 kB
                    job = w.get("horovodjobs", f"j{i}")
                    job["status"] = job.get("status", {}) | {"message": "x" * 400 + str(n)}
                    w.fake.put("horovodjobs", job)
                last = "x" + str(n)
                s.wait(
                    "change",
                    lambda _, d, last=last: any(r.get("message", "").endswith(last) for r in d["jobs"]),
                )
                if streams() == 1:
                    break
                expect(n < 200, "ended in time")
            expect(not s.is_over, "the other viewer is served")
        slow.close()


@suite.test
def viewers_who_come_at_once_are_all_served() -> None:
    """As those of an operator that was started again: it knows none of their tokens."""
    with Paged(extra=["--page-check-interval", "60s"]) as w, contextlib.ExitStack() as stack:
        viewers = []
        for i in range(100):
            w.fake.tokens[f"token-{i}"] = {"user": "root"}
            c = stack.enter_context(socket.create_connection(("127.0.0.1", w.page_port), 60))
            c.sendall(
                f"GET /api/v1/watch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-{i}\r\n\r\n".encode()
            )
            viewers.append(c)
        heads = [c.recv(12).decode() for c in viewers]
        expect(set(heads) == {"HTTP/1.1 200"}, "all are served", heads)


class PagedRivals(Rivals):
    def __init__(self):
        self.page_ports = {"a": free_port(), "b": free_port()}
        super().__init__()

    def args(self, who: str) -> list[str]:
        return [*super().args(who), "--page", str(self.page_ports[who])]


@suite.test
def only_the_leader_serves_data() -> None:
    with PagedRivals() as w:
        w.fake.tokens[ROOT] = {"user": "root"}
        for kind in ("horovodjobs", "mpijobs"):
            w.fake.rights.add(("root", "list", kind, ""))

        def ask(who: str) -> tuple[int, str | None]:
            headers = {"Authorization": f"Bearer {ROOT}"}
            with contextlib.closing(
                http.client.HTTPConnection("127.0.0.1", w.page_ports[who], timeout=60)
            ) as c:
                c.request("GET", "/api/v1/jobs", headers=headers)
                r = c.getresponse()
                return r.status, r.getheader("Connection")

        wait("a serves", lambda: ask("a")[0] == 200)
        expect(ask("b") == (503, "close"), "b refuses and closes the connection", ask("b"))
        w.operators["a"].stop()
        wait("b serves", lambda: ask("b")[0] == 200)
