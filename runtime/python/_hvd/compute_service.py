# SPDX-License-Identifier: Apache-2.0
"""The registry of a tf.data service: dispatchers, ready workers and shutdown.

    training rank --.                            .-- compute rank 0: ComputeService
    training rank ---+-- ComputeClient ---tcp---'
    compute rank ---'    one connection a request: nonce -> request -> answer

Two jobs that share nothing but a file with its addresses and key (TfDataServiceConfig) register here. No
framework is needed.

Protocol: the service sends a random nonce, then one frame each way: HMAC-SHA256 by the key (32 bytes),
length (4 bytes, big endian), JSON. The request's digest covers the nonce, the answer's both, so that
nothing can be replayed. Nothing is unpickled, nothing is read beyond MAX_BYTES, and a client without a
valid request within GREETING_SECONDS is dropped.

Requests may be repeated without harm; clients do so when a connection breaks.
"""

import fcntl
import json
import logging
import os
import queue
import socket
import socketserver
import struct
import threading

from _hvd import secret
from _hvd.threads import in_thread
from _hvd.timeouts import Timeout, TimeoutException

MAX_BYTES = 65536
NONCE_BYTES = 16
GREETING_SECONDS = 10
CONNECT_SECONDS = 20
LOOPBACK_SECONDS = 2  # where the service is on this host, its other addresses answer as soon
ATTEMPTS = 3
END_SECONDS = 5

_log = logging.getLogger("horovod.compute_service")
_ERRORS = {
    "IndexError": IndexError,
    "ValueError": ValueError,
    "TimeoutException": TimeoutException,
    "RuntimeError": RuntimeError,
}


class NoValidAddressesFound(Exception):
    """The service cannot be reached at any of its addresses."""


class _WrongDigest(ConnectionError):
    """The other side has another key."""


def _exactly(sock, count):
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise ConnectionError("the connection was closed")
        data += part
    return data


def _send_frame(sock, key, salt, message):
    body = json.dumps(message).encode()
    digest = secret.compute_digest(key, salt + body)
    sock.sendall(digest + struct.pack("!I", len(body)) + body)
    return digest


def _receive_frame(sock, key, salt):
    """(message, digest)"""
    digest = _exactly(sock, secret.DIGEST_LENGTH)
    (length,) = struct.unpack("!I", _exactly(sock, 4))
    if length > MAX_BYTES:
        raise ConnectionError(f"a message of {length} bytes: at most {MAX_BYTES} are read")
    body = _exactly(sock, length)
    if not secret.check_digest(key, salt + body, digest):
        raise _WrongDigest("Security error: digest did not match the message.")
    return json.loads(body), digest


def _interface_addresses():
    """{interface: [addresses]} of this host: IPv4, and IPv6 but link-local ones."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for _, name in socket.if_nameindex():
            try:  # SIOCGIFADDR
                answer = fcntl.ioctl(s, 0x8915, struct.pack("256s", name.encode()[:15]))
                found.setdefault(name, []).append(socket.inet_ntoa(answer[20:24]))
            except OSError:
                continue  # has no IPv4 address
    try:
        with open("/proc/net/if_inet6") as f:
            rows = [line.split() for line in f]
    except OSError:
        rows = []
    for digits, _, _, scope, _, name in rows:
        if scope in ("00", "10"):  # global, or ::1
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
            found.setdefault(name, []).append(address)
    return found


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True  # shutdown() waits for them itself, for a while
    request_queue_size = 1024  # all workers may connect at once

    def __init__(self, handler):
        both = socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if both else socket.AF_INET
        super().__init__(("", 0), handler)

    def server_bind(self):
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request, client_address):
        _log.exception("compute service: a request of %s failed", client_address[0])


class ComputeService:
    """Serves until shutdown(), which a client may request. nics: interfaces to listen on; none: all."""

    NAME = "Compute service"

    def __init__(self, dispatchers, workers_per_dispatcher, key, nics=None):
        if dispatchers <= 0:
            raise ValueError(f"The number of dispatchers must be larger than 0: {dispatchers}")
        if workers_per_dispatcher <= 0:
            raise ValueError(
                f"The number of workers per dispatcher must be larger than 0: {workers_per_dispatcher}"
            )
        self._key = key
        self._workers_per_dispatcher = workers_per_dispatcher
        self._dispatchers = [None] * dispatchers  # their addresses
        self._workers = [set() for _ in range(dispatchers)]
        self._is_over = False
        self._serving = 0
        self._changed = threading.Condition()  # guards the above
        self._end_lock = threading.Lock()

        service = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                service._serve(self.request, self.client_address[0])

        self._server = _Server(Handler)
        port = self._server.server_address[1]
        self._addresses = {
            name: [(address, port) for address in addresses]
            for name, addresses in _interface_addresses().items()
            if not nics or name in nics
        }
        if not self._addresses:
            self._server.server_close()
            raise NoValidAddressesFound(
                f"compute service: none of the network interfaces {sorted(nics or [])} has an address"
            )
        self._thread = in_thread(self._server.serve_forever, (0.05,), name="hvd-compute-service")

    def addresses(self):
        """{interface: [(address, port)]}"""
        return {name: list(addresses) for name, addresses in self._addresses.items()}

    def get_port(self):
        return self._server.server_address[1]

    def _serve(self, sock, peer):
        with self._changed:
            self._serving += 1
            self._changed.notify_all()
        try:
            sock.settimeout(GREETING_SECONDS)
            nonce = os.urandom(NONCE_BYTES)
            sock.sendall(nonce)
            request, digest = _receive_frame(sock, self._key, b"request" + nonce)
            answer = self._answered(request)
            _send_frame(sock, self._key, b"answer" + nonce + digest, answer)
        except _WrongDigest:
            _log.warning("compute service: dropped a request of %s, which has another key", peer)
        except (OSError, ValueError) as e:
            _log.debug("compute service: dropped a request of %s: %s", peer, e)
        finally:
            with self._changed:
                self._serving -= 1
                self._changed.notify_all()

    def _answered(self, request):
        try:
            handle = {
                "ping": lambda: self.NAME,
                "register_dispatcher": self._register_dispatcher,
                "wait_for_dispatcher": self._wait_for_dispatcher,
                "register_worker": self._register_worker,
                "wait_for_workers": self._wait_for_workers,
                "shutdown": self._shutdown_soon,
                "wait_for_shutdown": self._wait_for_shutdown,
            }[request["do"]]
            arguments = {name: value for name, value in request.items() if name != "do"}
            return {"result": handle(**arguments)}
        except tuple(_ERRORS.values()) as e:
            return {"error": type(e).__name__, "text": str(e)}
        except (KeyError, TypeError) as e:
            return {"error": "ValueError", "text": f"compute service: not a request: {e}"}

    def _check_dispatcher(self, dispatcher):
        last = len(self._dispatchers) - 1
        if not 0 <= dispatcher <= last:
            raise IndexError(f"Dispatcher id must be within [0..{last}]: {dispatcher}")

    def _wait(self, condition, seconds, activity, who):
        """Waits until condition() is true. Call with the lock held."""
        time = Timeout(
            seconds,
            "Timed out waiting for {activity}. "
            f"Try to find out what takes the {who} so long to register or increase timeout.",
        )
        while not condition():
            if self._is_over:
                raise RuntimeError(f"compute service: shut down before {activity.replace(' to ', ' did ')}")
            time.check_time_out_for(activity)
            self._changed.wait(time.remaining() + 0.001)

    def _register_dispatcher(self, dispatcher, address):
        with self._changed:
            self._check_dispatcher(dispatcher)
            before = self._dispatchers[dispatcher]
            if before not in (None, address):
                raise ValueError(
                    f"Dispatcher with id {dispatcher} has already been registered under different address "
                    f"{before}: {address}"
                )
            self._dispatchers[dispatcher] = address
            self._changed.notify_all()

    def _wait_for_dispatcher(self, dispatcher, timeout):
        with self._changed:
            self._check_dispatcher(dispatcher)
            self._wait(
                lambda: self._dispatchers[dispatcher] is not None,
                timeout,
                f"dispatcher {dispatcher} to register",
                "dispatcher",
            )
            return self._dispatchers[dispatcher]

    def _register_worker(self, dispatcher, worker):
        with self._changed:
            self._check_dispatcher(dispatcher)
            self._workers[dispatcher].add(worker)
            self._changed.notify_all()

    def _wait_for_workers(self, dispatcher, timeout):
        with self._changed:
            self._check_dispatcher(dispatcher)
            self._wait(
                lambda: len(self._workers[dispatcher]) >= self._workers_per_dispatcher,
                timeout,
                f"workers for dispatcher {dispatcher} to register",
                "workers",
            )

    def _wait_for_shutdown(self):
        with self._changed:
            while not self._is_over:
                self._changed.wait()

    def _shutdown_soon(self):
        in_thread(self.shutdown)

    def shutdown(self):
        """Ends all waits, then the service. Idempotent."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        with self._end_lock:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            with self._changed:
                self._changed.wait_for(lambda: not self._serving, END_SECONDS)


def _is_loopback(address):
    return address.startswith("127.") or address == "::1"


class ComputeClient:
    """Sends requests to the service. compute_addresses: its addresses(), which may include several hosts.

    local_address: of this host, on its route to the service; other hosts may reach it by that.
    """

    def __init__(self, compute_addresses, key, verbose=1):
        self._key = key
        self._verbose = verbose
        addresses = [tuple(a) for of_one in compute_addresses.values() for a in of_one]
        self._address, self.local_address = self._first_that_answers(addresses)

    def _first_that_answers(self, addresses):
        """(address, this host's on the route to it); no loopback address if possible."""
        answers = queue.Queue()
        for address in addresses:
            in_thread(self._probe, (address, answers))
        loopback, why = None, {}
        for _ in addresses:
            try:
                address, here, error = answers.get(timeout=LOOPBACK_SECONDS if loopback else None)
            except queue.Empty:
                return loopback
            if error is not None:
                why[address] = error
            elif not _is_loopback(address[0]):
                return address, here
            else:
                loopback = loopback or (address, here)
        if loopback:
            return loopback
        failures = "; ".join(f"{host} port {port}: {e}" for (host, port), e in sorted(why.items()))
        raise NoValidAddressesFound(
            f"Unable to connect to the {ComputeService.NAME} on any address: {failures}"
        )

    def _probe(self, address, answers):
        error = here = None
        for _ in range(ATTEMPTS):
            try:
                answer, here = self._exchange(address, CONNECT_SECONDS, {"do": "ping"})
                error = None if answer.get("result") == ComputeService.NAME else "another service"
                break
            except (OSError, ValueError) as e:
                error = e
        answers.put((address, here, error))

    def _exchange(self, address, seconds, request):
        """Sends a request; returns (answer, this host's address). seconds: limit for the answer or None."""
        with socket.create_connection(address, CONNECT_SECONDS) as sock:
            sock.settimeout(CONNECT_SECONDS)
            nonce = _exactly(sock, NONCE_BYTES)
            digest = _send_frame(sock, self._key, b"request" + nonce, request)
            sock.settimeout(seconds)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # detects a lost host
            for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
            try:
                answer, _ = _receive_frame(sock, self._key, b"answer" + nonce + digest)
            except ConnectionResetError:
                raise ConnectionError("the connection was closed") from None
            return answer, sock.getsockname()[0]

    def _request(self, seconds, do, **arguments):
        for attempt in range(ATTEMPTS):
            try:
                answer, _ = self._exchange(self._address, seconds, {"do": do, **arguments})
                break
            except (OSError, ValueError) as e:
                if attempt == ATTEMPTS - 1:
                    host, port = self._address
                    raise ConnectionError(
                        f"the compute service at {host} port {port} does not answer ({e}); it has ended, "
                        "or this is another service's key"
                    ) from e
        if "error" in answer:
            raise _ERRORS.get(answer["error"], RuntimeError)(answer["text"])
        return answer["result"]

    def register_dispatcher(self, dispatcher_id, dispatcher_address):
        self._request(
            CONNECT_SECONDS, "register_dispatcher", dispatcher=dispatcher_id, address=dispatcher_address
        )

    def wait_for_dispatcher_registration(self, dispatcher_id, timeout):
        """Its address. TimeoutException after timeout seconds."""
        seconds = timeout + CONNECT_SECONDS
        return self._request(seconds, "wait_for_dispatcher", dispatcher=dispatcher_id, timeout=timeout)

    def register_worker_for_dispatcher(self, dispatcher_id, worker_id):
        self._request(CONNECT_SECONDS, "register_worker", dispatcher=dispatcher_id, worker=worker_id)

    def wait_for_dispatcher_worker_registration(self, dispatcher_id, timeout):
        """Returns when all workers of the dispatcher have registered. TimeoutException after timeout
        seconds."""
        seconds = timeout + CONNECT_SECONDS
        self._request(seconds, "wait_for_workers", dispatcher=dispatcher_id, timeout=timeout)

    def shutdown(self):
        self._request(CONNECT_SECONDS, "shutdown")

    def wait_for_shutdown(self):
        """Returns when the service has ended. It was reachable when this client was created."""
        try:
            self._request(None, "wait_for_shutdown")
        except ConnectionError as e:
            if not isinstance(e.__cause__, (ConnectionRefusedError, ConnectionResetError)):
                raise
