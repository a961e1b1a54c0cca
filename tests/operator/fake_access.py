# SPDX-License-Identifier: Apache-2.0
"""Access of hvd-operator to the API server and its credentials: tokens that change, plug-ins, TLS,
proxies. Part of fake_test.py.
"""

from __future__ import annotations

import gzip
import json
import os
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from api import expect, wait
from fake_world import World, suite

EXEC = "{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: ./get, provideClusterInfo: true}"


class Access(World):
    """user: what is put in as users[].user; cluster: more fields of the cluster. files: beside the
    kubeconfig, by name."""

    def __init__(self, user: str = "{}", cluster: str = "", hook=None, files=None, server=None, extra=()):
        self.user, self.cluster, self.files, self.server = user, cluster, files or {}, server
        super().__init__(hook, extra=["--watch-idle-timeout=60s", *extra])

    def kubeconfig(self) -> str:
        for name, text in self.files.items():
            (self.dir / name).write_text(text)
            (self.dir / name).chmod(0o700)
        return (
            "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
            f"clusters: [{{name: k, cluster: {{server: '{self.server or self.fake.url}'{self.cluster}}}}}]\n"
            f"users: [{{name: u, user: {self.user}}}]\n"
        ).replace("PROXY", self.fake.url)


def only_for(wanted, seen: list[str]):
    """A hook that answers 401 to every other token."""

    def hook(w, h, method, plural, query):
        got = h.headers.get("Authorization", "")
        seen.append(got)
        if got == wanted():
            return False
        w.fake.answer(h, 401, '{"reason": "Unauthorized", "message": "Unauthorized"}')
        return True

    return hook


@suite.test
def a_plug_in_provides_the_token_and_a_new_one_after_a_401() -> None:
    wanted, seen = ["Bearer 1"], []
    script = """#!/bin/sh
echo >>runs-of-plug-in
case $KUBERNETES_EXEC_INFO in *'"server":"http'*) ;; *) echo "no cluster" >&2; exit 1;; esac
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}' \\
    $(wc -l <runs-of-plug-in)
"""
    script = script.replace("runs-of-plug-in", '"$(dirname "$0")/runs"')
    with Access(f"{{exec: {EXEC}}}", hook=only_for(lambda: wanted[0], seen), files={"get": script}) as w:
        w.serves_job()
        expect(set(seen) == {"Bearer 1"}, "nothing was sent without it", str(set(seen)))
        wait("5 s between two runs", lambda: time.time() - (w.dir / "runs").stat().st_mtime > 5)
        wanted[0] = "Bearer 2"
        w.job_runs("j1")
        expect("sync failed" not in w.log(), "no write failed: it waited for the token", w.log())
        expect("Bearer" not in w.log() and "ExecCredential" not in w.log(), "nothing of it in the log")


@suite.test
def a_plug_in_gets_none_of_the_operator_s_descriptors() -> None:
    script = """#!/bin/sh
cd "$(dirname "$0")" || exit 1
ls -l /proc/$$/fd >new && mv new fds-$(ls fds-* 2>/dev/null | wc -l)
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}'
"""
    refuse = []

    def hook(w, h, method, plural, query):
        if refuse and plural == "leases" and not (w.dir / "fds-1").exists():
            w.fake.answer(h, 401, '{"reason": "Unauthorized", "message": "Unauthorized"}')
            return True
        return False

    with Access(f"{{exec: {EXEC}}}", hook=hook, files={"get": script}, extra=["--leader-elect"]) as w:
        w.serves_job()
        refuse.append(1)  # while watches are open
        wait("a second run", lambda: (w.dir / "fds-1").exists())
        told = (w.dir / "fds-1").read_text()
        expect("socket:" not in told and " 2 -> " in told, "no socket", told)


@suite.test
def a_failed_plug_in_is_reported_with_its_output_and_retried() -> None:
    script = """#!/bin/sh
if [ -e "$(dirname "$0")/ready" ]; then
    echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}'
else
    echo secret-output; echo "please log in" >&2; exit 7
fi
"""
    with Access(f"{{exec: {EXEC}}}", files={"get": script}) as w:
        wait("the log has it", lambda: "exited with code 7: please log in" in w.log())
        expect("secret-output" not in w.log(), "not what it printed", w.log())
        (w.dir / "ready").touch()
        w.serves_job()


@suite.test
def name_password_and_impersonation_are_sent() -> None:
    seen = []

    def hook(w, h, method, plural, query):
        seen.append({k: h.headers.get_all(k) for k in h.headers})
        return False

    user = "{username: a, password: b, as: jane, as-groups: [x, y], as-user-extra: {scope: [s]}}"
    with Access(user, hook=hook) as w:
        w.serves_job()
    for one in seen:
        expect(one.get("Authorization") == ["Basic YTpi"], "basic", one)
        expect(one.get("Impersonate-User") == ["jane"], "the user", one)
        expect(one.get("Impersonate-Group") == ["x", "y"], "the groups", one)
        expect(one.get("Impersonate-Extra-scope") == ["s"], "the rest", one)


@suite.test
def a_compressed_list_is_read() -> None:
    packed = []

    def hook(w, h, method, plural, query):
        if method == "GET" and "watch" not in query and plural == "horovodjobs":
            expect("gzip" in h.headers.get("Accept-Encoding", ""), "gzip is asked for")
            items = list(w.fake.objects[plural].values())
            text = {"items": items, "metadata": {"resourceVersion": str(w.fake.version)}}
            data = gzip.compress(json.dumps(text).encode())
            h.send_response(200)
            h.send_header("Content-Encoding", "gzip")
            h.send_header("Content-Length", str(len(data)))
            h.end_headers()
            h.wfile.write(data)
            packed.append(1)
            return True
        return False

    with World(hook) as w:
        w.serves_job()
        expect(bool(packed), "it was compressed")


# --- proxies ------------------------------------------------------------------------------
@suite.test
def the_kubeconfig_s_proxy_is_used_even_for_this_machine() -> None:
    paths = []

    def hook(w, h, method, plural, query):
        paths.append(h.path)
        return False

    world = Access.__new__(Access)
    os.environ["NO_PROXY"] = "*"
    try:
        Access.__init__(world, hook=hook, server="http://127.0.0.1:1", cluster=", proxy-url: 'PROXY'")
        with world as w:
            w.serves_job()
    finally:
        del os.environ["NO_PROXY"]
    expect(all(p.startswith("http://127.0.0.1:1/") for p in paths), "whole addresses", paths[:3])


class Tunnel:
    """An HTTP proxy that records the requests and refuses them."""

    def __init__(self):
        self.asked: list[str] = []
        tunnel = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_CONNECT(self):
                tunnel.asked.append(self.path)
                self.send_error(403)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@suite.test
def the_environment_s_proxy_is_used_except_for_no_proxy() -> None:
    for host, no_proxy, asked in (
        ("kube.invalid", "", True),
        ("kube.invalid", "kube.invalid", False),
        ("localhost.kube.invalid", "", True),
        ("127.kube.invalid", "", True),
        ("127.0.0.1", "", False),
    ):
        tunnel = Tunnel()  # another each time: what an operator asked the last one may be on its way
        os.environ |= {"HTTPS_PROXY": tunnel.url, "NO_PROXY": no_proxy}
        try:
            with Access(server=f"https://{host}:1") as w:
                wait("it has tried", lambda w=w: "watch interrupted" in w.log())
        finally:
            del os.environ["HTTPS_PROXY"], os.environ["NO_PROXY"]
        expect(bool(tunnel.asked) == asked, f"{host} NO_PROXY={no_proxy}", tunnel.asked)
        expect(not asked or tunnel.asked[0] == f"{host}:1", "the server", tunnel.asked)
        tunnel.server.shutdown()
        tunnel.server.server_close()


# --- TLS ----------------------------------------------------------------------------------
def certificate(into: Path, name: str) -> None:
    """A certificate of its own for 127.0.0.1: into/name.crt and into/name.key."""
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", str(into / f"{name}.key"), "-out", str(into / f"{name}.crt"),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )  # fmt: skip


class Secure(Access):
    """A fake behind TLS, with certificate one; ca.crt beside the kubeconfig is what is trusted."""

    def kubeconfig(self) -> str:
        certificate(self.dir, "one")
        certificate(self.dir, "two")
        (self.dir / "ca.crt").write_text((self.dir / "one.crt").read_text())
        server = self.fake.server
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.num_tickets = 0  # a session that is resumed shows no certificate
        self.tls.options |= ssl.OP_NO_TICKET
        self.present("one")
        server.socket = self.tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.server = self.fake.url = self.fake.url.replace("http:", "https:")
        return super().kubeconfig()

    def present(self, name: str) -> None:
        """To connections to come."""
        self.tls.load_cert_chain(self.dir / f"{name}.crt", self.dir / f"{name}.key")


@suite.test
def a_new_ca_is_used_without_a_restart() -> None:
    with Secure(cluster=", certificate-authority: ca.crt") as w:
        w.serves_job()
        w.present("two")
        w.fake.cut()
        wait("it does not trust that", lambda: "certificate" in w.log())
        (w.dir / "ca.crt").write_text((w.dir / "two.crt").read_text())
        w.job_runs("j1")


@suite.test
def an_unknown_server_is_refused_unless_the_kubeconfig_says_otherwise() -> None:
    with Secure() as w:
        wait("it is logged", lambda: "certificate" in w.log())
        expect(not w.fake.requests, "and nothing was asked", w.fake.requests)
    with Secure(cluster=", insecure-skip-tls-verify: true") as w:
        w.serves_job()
        expect("is not verified" in w.log(), "a warning", w.log())


class Known(Secure):
    """A fake that identifies clients by their certificates and answers 401 to those in expired."""

    def __init__(self):
        self.expired: set[str] = set()
        self.seen: list[str] = []
        user = "{client-certificate: me.crt, client-key: me.key}"
        super().__init__(user, ", certificate-authority: ca.crt", hook=Known.check)

    def kubeconfig(self) -> str:
        text = super().kubeconfig()
        self.tls.verify_mode = ssl.CERT_REQUIRED
        for name in ("one", "two"):
            self.tls.load_verify_locations(self.dir / f"{name}.crt")
        self.be("one")
        return text

    def be(self, name: str) -> None:
        for kind in ("crt", "key"):
            (self.dir / f"me.{kind}").write_text((self.dir / f"{name}.{kind}").read_text())

    def check(self, h, method, plural, query) -> bool:
        name = dict(pair[0] for pair in h.connection.getpeercert()["subject"])["commonName"]
        self.seen.append(name)
        if name in self.expired:
            self.fake.answer(h, 401, '{"reason": "Unauthorized", "message": "Unauthorized"}')
        return name in self.expired


@suite.test
def a_renewed_client_certificate_is_used_after_a_401() -> None:
    with Known() as w:
        w.serves_job()
        w.be("two")
        w.expired.add("one")  # on connections that stay open, too
        w.job_runs("j1")
        expect("two" in w.seen, "with the new one", set(w.seen))
        w.fake.cut()
        wait("watches with the new one", lambda: w.seen[-3:] == ["two"] * 3)


@suite.test
def a_renewed_client_certificate_is_used_by_the_next_request() -> None:
    """Although the server still accepts the old one on open connections."""
    with Known() as w:
        w.serves_job()
        (w.dir / "me.crt").write_text((w.dir / "two.crt").read_text())  # and not the key yet
        w.job_runs("j1")
        expect(set(w.seen) == {"one"}, "no half of a pair is used", set(w.seen))
        expect("me.key: does not belong to" in w.log(), "it is logged", w.log())
        w.be("two")
        wait("it is read again", lambda: "client certificate renewed" in w.log() or ask(w))
        for name in "j2", "j3":
            n = len(w.seen)  # in the end of j3's: what was on its way with the old one came beside j2's
            w.job_runs(name)
        expect(set(w.seen[n:]) == {"two"}, "every request has the new one", w.seen[n:])
        expect("interrupted" not in w.log(), "the watches stayed open", w.log())


def ask(w: World) -> bool:
    """Makes the operator send another request after it has finished the previous ones."""
    n = len(w.fake.objects["horovodjobs"])
    if len(w.fake.objects["pods"]) == 2 * n:
        w.fake.put("horovodjobs", w.job(f"ask{n}"))
    return False
