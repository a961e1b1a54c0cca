# SPDX-License-Identifier: Apache-2.0
"""``horovod.run(func, args, np=N)``: a function on N ranks, its results by rank.

    run() --- func, args: pickled ---> DIR/function           a private folder of this call
      |
      horovodrun -np N ... python run_task.py DIR             every flag goes to the launcher
      |     rank 0 .. N-1: func(*args, **kwargs)
      |     [rank]<stdout>:... live to sys.stdout             (a notebook's cell too)
      |
      <-- what func returned or raised, pickled --- DIR/rank.0 .. DIR/rank.N-1

DIR is created in HVD_RUN_DIR, else in the system's temporary folder; with other hosts it must be a folder
that all of them share. Ranks read and write it with the user's rights; no socket carries pickled data.
"""

import contextlib
import ctypes
import os
import pickle
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings

from _hvd import pickling

_LAUNCHER = "horovodrun"
_PR_SET_PDEATHSIG = 1
_LAST_LINES = 20  # of the launcher's own, for the exception


class RemoteTraceback(Exception):
    """The traceback of a rank, as the cause of the exception that run() raises."""

    def __init__(self, text):
        super().__init__(text)
        self.text = text

    def __str__(self):
        return f'\n"""\n{self.text}"""'


def _is_ours(path):
    """Whether this is our launcher: Horovod's of the same name is a Python script."""
    try:
        with open(path, "rb") as f:
            return f.read(4) == b"\x7fELF"
    except OSError:
        return False


def find_launcher():
    """The horovodrun of this installation: next to the packages, next to python, or on PATH."""
    here = os.path.dirname(os.path.abspath(__file__))
    beside = os.path.join(os.path.dirname(os.path.dirname(here)), "bin", _LAUNCHER)
    scripts = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), _LAUNCHER)
    for path in (beside, scripts, shutil.which(_LAUNCHER)):
        if path and _is_ours(path):
            return path
    raise RuntimeError(
        f"horovod.run: {_LAUNCHER} was looked for at {beside}, at {scripts} and on PATH, and is not there"
    )


def _joined(value):
    return value if isinstance(value, str) else ",".join(value)


def _flags(given):
    """The launcher's flags of what the caller has given; it judges the values itself."""
    texts = (
        ("num_proc", "-np"),
        ("min_num_proc", "--min-np"),
        ("max_num_proc", "--max-np"),
        ("slots", "--slots-per-host"),
        ("reset_limit", "--reset-limit"),
        ("hosts", "-H"),
        ("hostfile", "-hostfile"),
        ("host_discovery_script", "--host-discovery-script"),
        ("start_timeout", "--start-timeout"),
        ("ssh_port", "-p"),
        ("ssh_identity_file", "-i"),
        ("output_filename", "--output-filename"),
        ("mpi_args", "--mpi-args"),
    )
    switches = (
        ("disable_cache", "--disable-cache"),
        ("verbose", "--verbose"),
        ("use_gloo", "--gloo"),
        ("use_mpi", "--mpi"),
    )
    flags = []
    for name, flag in texts:
        if given[name] is not None:
            flags += [flag, str(given[name])]
    for name, flag in switches:
        if given[name]:
            flags.append(flag)
    if given["cooldown_range"] is not None:
        flags += ["--blacklist-cooldown-range", *(str(s) for s in given["cooldown_range"])]
    for name in ("network_interface", "network_interfaces"):
        if given[name]:
            flags += ["--network-interfaces", _joined(given[name])]
    return flags


def _write_function(directory, func, args, kwargs):
    if not callable(func):
        raise TypeError(f"horovod.run: func is {func!r}, which cannot be called")
    if getattr(func, "__module__", None) == "__main__" and pickling.cloudpickle() is None:
        raise ValueError(
            f"horovod.run: {func!r} is defined in the script or notebook itself: pip install "
            "cloudpickle to send such functions, or move it to a module"
        )
    try:
        body = pickling.dumps_whole((func, tuple(args), dict(kwargs or {})))
    except Exception as e:
        raise ValueError(f"horovod.run: {func!r} and its arguments cannot be pickled: {e}") from e
    with open(os.path.join(directory, "function"), "wb") as f:
        pickle.dump(sys.path, f)
        f.write(body)


def _ends_with_parent():
    """Runs in the child before exec, so that it gets SIGTERM when this process ends for any reason."""
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def prepare():
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


class _Console:
    """Passes on a launcher's two streams, live, and keeps its own messages."""

    def __init__(self, process):
        self.messages = []
        self._rest = {}
        self._select = selectors.DefaultSelector()
        for pipe, to in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            self._rest[pipe] = b""
            self._select.register(pipe, selectors.EVENT_READ, to)

    def pump(self):
        """Waits until both streams have ended. May be interrupted and called again."""
        while self._select.get_map():
            for key, _ in self._select.select():
                self._take(key.fileobj, key.data)

    def _take(self, pipe, to):
        data = os.read(pipe.fileno(), 65536)
        if not data:
            self._select.unregister(pipe)
        lines = (self._rest[pipe] + data).splitlines(keepends=True)
        whole = not data or not lines or lines[-1].endswith((b"\n", b"\r"))
        self._rest[pipe] = b"" if whole else lines.pop()
        text = b"".join(lines).decode(errors="replace")
        self.messages += [x for x in text.splitlines() if x.startswith(_LAUNCHER + ": ")]
        del self.messages[:-_LAST_LINES]
        to.write(text)
        to.flush()


def _launch(argv):
    """(exit code, the launcher's own lines); KeyboardInterrupt after the job has ended."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_ends_with_parent(),
    )
    was_interrupted = False
    try:
        console = _Console(process)
        while True:
            try:
                console.pump()
                process.wait()
                break
            except KeyboardInterrupt:  # the launcher kills the ranks at the second one
                was_interrupted = True
                process.send_signal(signal.SIGINT)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()
    if was_interrupted:
        raise KeyboardInterrupt
    return process.returncode, console.messages


def _read_ends(directory):
    """Returns {rank: what run_task.py wrote}, without ranks that wrote nothing."""
    ends = {}
    for name in os.listdir(directory):
        if name.startswith("rank.") and name[5:].isdigit():
            with open(os.path.join(directory, name), "rb") as f:
                ends[int(name[5:])] = pickle.load(f)
    return ends


def _raise_first(ends):
    """Raises the first exception of a rank; those that only lost a peer count last."""
    raised = [(e["is_consequence"], e["at"], rank) for rank, e in ends.items() if "text" in e]
    if not raised:
        return
    rank = min(raised)[2]
    end = ends[rank]
    cause = RemoteTraceback(end["text"])
    with contextlib.suppress(Exception):  # its class may not be importable here
        original = pickle.loads(end["exception"])
        original.__cause__ = cause
        cause = original
    raise RuntimeError(f"horovod.run: rank {rank} on host {end['host']} raised {end['summary']}") from cause


def _value(rank, end):
    try:
        return pickle.loads(end["value"])
    except Exception as e:
        raise RuntimeError(f"horovod.run: the result of rank {rank} cannot be unpickled here: {e}") from e


def run(
    func,
    args=(),
    kwargs=None,
    num_proc=1,
    min_num_proc=None,
    max_num_proc=None,
    slots=None,
    reset_limit=None,
    cooldown_range=None,
    hosts=None,
    hostfile=None,
    host_discovery_script=None,
    start_timeout=None,
    ssh_port=None,
    ssh_identity_file=None,
    disable_cache=None,
    output_filename=None,
    verbose=None,
    use_gloo=None,
    use_mpi=None,
    mpi_args=None,
    network_interface=None,
    network_interfaces=None,
    executable=None,
    np=None,
    min_np=None,
    max_np=None,
):
    """Runs func(*args, **kwargs) on num_proc ranks and returns the list of their results, by rank.

    The arguments are those of horovodrun's flags (horovodrun(1)), by Horovod's names. executable is
    the Python of the ranks (default: this one). What the ranks print appears on sys.stdout and sys.stderr
    at once, each line prefixed with its rank. Ctrl-C (a notebook's stop button) ends the ranks, a second
    one kills them; then KeyboardInterrupt is raised.

    Raises ValueError for arguments that exclude each other or cannot be pickled; RuntimeError when
    a rank raised an exception (the first one, with its traceback as the cause) or the job failed
    otherwise (with the launcher's error message).
    """
    for old, value, new in (
        ("np", np, "num_proc"),
        ("min_np", min_np, "min_num_proc"),
        ("max_np", max_np, "max_num_proc"),
    ):
        if value is not None:
            warnings.warn(f"{old} is deprecated, use {new} instead", DeprecationWarning, stacklevel=2)
    num_proc = num_proc if np is None else np
    min_num_proc = min_num_proc if min_np is None else min_np
    max_num_proc = max_num_proc if max_np is None else max_np
    if hosts is not None and hostfile is not None:
        raise ValueError("Argument hosts and hostfile only allow one provided.")
    if use_gloo and use_mpi:
        raise ValueError("Argument use_gloo and use_mpi only allow one set True.")
    flags = _flags(locals())
    launcher = find_launcher()
    directory = tempfile.mkdtemp(prefix="horovod.run.", dir=os.environ.get("HVD_RUN_DIR") or None)
    try:
        _write_function(directory, func, args, kwargs)
        task = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run_task.py")
        code, messages = _launch([launcher, *flags, "--", executable or sys.executable, task, directory])
        ends = _read_ends(directory)
        _raise_first(ends)
        if code != 0:
            raise RuntimeError(
                f"horovod.run: the job exited with non-zero status {code}: " + " ".join(messages)
            )
        if not ends or len(ends) < ends[min(ends)]["size"]:
            raise RuntimeError(
                f"horovod.run: func returned on ranks {sorted(ends)} only, the other ranks left (sys.exit?)"
            )
        return [_value(rank, ends[rank]) for rank in sorted(ends)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
