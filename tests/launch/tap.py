# SPDX-License-Identifier: Apache-2.0
"""A few lines of TAP for tests of whole programs: each test is a function, every wait has a deadline."""

import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

DEADLINE_S = float(os.environ.get("LAUNCH_TEST_DEADLINE", "120"))
# A program dies with the thread that started it, also when this process is killed. Its own guard and
# connections then end what it started.
DIES_WITH_US = [shutil.which("setpriv") or "setpriv", "--pdeathsig", "KILL", "--"]


class Skip(Exception):
    """The reason why a test cannot run here."""


def wait_until(what, condition, deadline_s=DEADLINE_S):
    """Waits for a condition that another process makes true. what may be a function: it is called after that."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f"not within {deadline_s} s: {what() if callable(what) else what}")


def is_alive(pid):
    """Whether a process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid, name=None):
    """Pids of the processes that a process has started, or of those with this name."""
    tasks = os.listdir(f"/proc/{pid}/task")
    pids = " ".join(read(f"/proc/{pid}/task/{task}/children") for task in tasks).split()
    return [int(p) for p in pids if name is None or read(f"/proc/{p}/comm") == f"{name}\n"]


def has_signal(pid, mask, number):
    """Whether a signal is in a mask of a process: SigBlk, SigCgt."""
    found = re.search(rf"{mask}:\s+(\S+)", read(f"/proc/{pid}/status"))
    return bool(found and int(found[1], 16) >> (number - 1) & 1)


def read(path):
    """A file's text; empty while it, or the process that it describes, does not exist."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


TOKEN = "5e" * 32


def secret(folder, name="token", text=TOKEN + "\n"):
    """A file of its own user only, with a token; its path."""
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
        f.write(text)
    return path


class Program:
    """A running program whose output goes to files, so that no test has to read it meanwhile."""

    started = []

    def __init__(self, argv, env, folder, name, **more):
        self.name, self.folder = name, folder
        self.out_path = os.path.join(folder, name + ".out")
        self.err_path = os.path.join(folder, name + ".err")
        more.setdefault("stdin", subprocess.DEVNULL)
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            more.setdefault("stdout", out)
            self.process = subprocess.Popen([*DIES_WITH_US, *argv], env=env, stderr=err, **more)
        self.pid = self.process.pid
        Program.started.append(self)

    def end(self, deadline_s=DEADLINE_S):
        """Its exit code as a shell would show it."""
        try:
            code = self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} did not end within {deadline_s} s:\n{self.err}") from None
        return code if code >= 0 else 128 - code

    def signal(self, number):
        self.process.send_signal(number)

    @property
    def out(self):
        return read(self.out_path)

    @property
    def err(self):
        return read(self.err_path)


def same(got, wanted, what=""):
    assert got == wanted, f"{what}: got {got!r}, wanted {wanted!r}"


def has(text, part):
    assert part in text, f"{part!r} is not in:\n{text}"


_saying = threading.Lock()


def say(line):
    """Prints a line whole, whatever other tests print; print() writes the line and its end one after the other."""
    with _saying:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def run_one(test):
    """Runs one function in a fresh folder: whether it passed, what to print behind its name, seconds."""
    start = time.monotonic()
    passed, more = True, ""
    # processes of a test that failed may still write there
    with tempfile.TemporaryDirectory(prefix="launch-", ignore_cleanup_errors=True) as folder:
        try:
            test(folder)
        except Skip as reason:
            more = f" # SKIP {reason}"
        except Exception:
            passed = False
            more = "".join(f"\n# {line}" for line in traceback.format_exc().splitlines())
        for program in [p for p in Program.started if p.folder.startswith(folder)]:
            if program.process.poll() is None:  # of a test that failed
                program.process.kill()
            Program.started.remove(program)
    return passed, more, time.monotonic() - start


def run_all(tests, at_once=1):
    """Runs the functions, so many at once. Returns the program's exit code."""
    chosen = [t for t in tests if not sys.argv[1:] or any(a in t.__name__ for a in sys.argv[1:])]
    say(f"1..{len(chosen)}")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        results = pool.map(run_one, chosen) if at_once > 1 else map(run_one, chosen)
        for number, (passed, more, took_s) in enumerate(results, 1):
            name = chosen[number - 1].__name__.replace("test_", "", 1)
            failed += not passed
            say(f"{'' if passed else 'not '}ok {number} - {name}{more}")
            if os.environ.get("LAUNCH_TEST_TIMES"):
                say(f"# {took_s:.2f} s")
    return 1 if failed else 0


def main(names, prepare=lambda: None, at_once=1):
    """Runs the test functions among names, which are globals(), and exits; prepare may skip all of them."""
    try:
        prepare()
        sys.exit(run_all([f for name, f in names.items() if name.startswith("test_")], at_once))
    except Skip as reason:
        print(f"1..0 # SKIP {reason}")


def stop(number, _):
    """Exits through atexit handlers, which remove network namespaces and folders."""
    for other in signal.SIGINT, signal.SIGTERM:
        signal.signal(other, signal.SIG_IGN)
    if threading.active_count() > 1:  # the pool would run all of its tests first
        os._exit(128 + number)
    sys.exit(128 + number)


signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
