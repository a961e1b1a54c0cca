# SPDX-License-Identifier: Apache-2.0
"""How this process ends, for the other ranks and for launchers.

    an uncaught exception --> sys.excepthook --.
                                               |--> _native.set_exit_cause --> the goodbye of shutdown(),
    sys.exit(n), exit(n) --> SystemExit.code --'                               which runs at the exit

install() is called by the first init(); a program that never calls it is left alone. The previous
sys.excepthook is always called, and nothing here may keep it from printing the traceback.

Invariants
 - Only what ends this process is a cause. A hook that is called while the program continues (a console, a
   thread, a forked child) passes the exception on. The interpreter asks a SystemExit for its code when it
   ends by it, and then no Python code runs; a program that catches the exception asks from its own frame.
 - A failure because of another rank's failure is no cause. Such a process exits with EXIT_OTHER_RANK.

Not seen: "raise SystemExit(n)" in the program's own code, which includes sys.exit(e) with an exception, and
a hook that replaces ours without calling it. The goodbye is an orderly one then.
"""

import builtins
import functools
import os
import sys
import threading

from _hvd import _native
from _hvd.exceptions import HorovodInternalError
from _hvd.libraries import is_library
from _hvd.missing_call import sentence_about

EXIT_OTHER_RANK = _native.EXIT_OTHER_RANK
_MESSAGE_BYTES = 200  # leaves room for the place in the 279 bytes that the runtime takes

_pid = None  # of the process that has installed the hooks
_has_cause = False


def install():
    """Registers the hooks. Once."""
    global _pid
    if _pid is not None:
        return
    _pid = os.getpid()
    sys.excepthook = _hook_before(sys.excepthook)
    sys.exit = functools.wraps(sys.exit)(_note_code(sys.exit))
    quitter = type(getattr(builtins, "exit", None))
    if quitter.__name__ == "Quitter":  # absent under python -S
        quitter.__call__ = _note_code(quitter.__call__)


def report(error):
    """Keeps this exception, which ends the process, as the cause. Returns the exit code."""
    global _has_cause
    if _is_consequence(error):
        return EXIT_OTHER_RANK
    _native.set_exit_cause(_clean(_sentence(error)), 0)
    _has_cause = True
    return 1


def _hook_before(previous):
    def excepthook(kind, value, trace):
        code = 1
        try:
            if value is not None:
                error = value if value.__traceback__ else value.with_traceback(trace)
                code = report(error) if _is_last(error) else 1
        except Exception:
            pass  # the traceback matters more
        previous(kind, value, trace)
        _explain(value)
        if code != 1:
            raise SystemExit(code)  # the interpreter takes it as the exit code

    return excepthook


def _explain(error):
    """Prints a sentence about an error that names of Horovod without a call have caused."""
    try:
        said = sentence_about(error)
        if said:
            print(f"horovod: {said}", file=sys.stderr)
    except Exception:
        pass  # the traceback is there


def _ends_here():
    """Whether the end of this thread is the end of the process that has installed the hooks."""
    return os.getpid() == _pid and threading.current_thread() is threading.main_thread()


def _is_last(error):
    """Whether the exception that the hook was called for ends the process."""
    if not _ends_here() or hasattr(sys, "ps1") or sys.flags.interactive or sys.flags.inspect:
        return False
    if not getattr(sys, "orig_argv", True):
        return False  # a host program embeds the interpreter
    catcher = error.__traceback__.tb_frame if error.__traceback__ else None
    frame = sys._getframe()
    while frame is not catcher and frame.f_back:
        frame = frame.f_back
    # else the program still runs: it has called the hook
    return frame is not catcher and frame.f_code.co_name not in ("<module>", "_run_module_as_main")


def _is_consequence(error):
    """Whether a failed collective is, or has led to, this exception, and another rank is the reason."""
    if not _native.ended_by_other():
        return False
    from _hvd.elastic import is_failed_collective

    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, HorovodInternalError) or is_failed_collective(error):
            return True
        seen.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def _sentence(error):
    """ValueError: bad batch (train.py:40)"""
    try:
        message = str(error)
    except Exception:
        message = "its message cannot be made"
    text = type(error).__name__ + (": " if message else "") + message
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > _MESSAGE_BYTES:
        text = encoded[: _MESSAGE_BYTES - 3].decode("utf-8", "ignore") + "..."
    place = _place(error.__traceback__)
    return f"{text} ({place})" if place else text


def _place(trace):
    """The innermost line of the program itself, or of all if there is none."""
    own = last = None
    while trace:
        name = trace.tb_frame.f_code.co_filename
        last = f"{os.path.basename(name)}:{trace.tb_lineno}"
        if not is_library(name):
            own = last
        trace = trace.tb_next
    return own or last


class _Exit(SystemExit):
    """SystemExit that reports its code when the interpreter, and not the program, asks for it."""

    @property
    def code(self):
        code = SystemExit.code.__get__(self)
        try:
            sys._getframe(1)
        except ValueError:
            _note_exit(code)
        return code

    @code.setter
    def code(self, code):
        SystemExit.code.__set__(self, code)

    def __reduce__(self):
        return SystemExit, self.args


_Exit.__name__ = _Exit.__qualname__ = "SystemExit"
_Exit.__module__ = "builtins"


def _note_code(original):
    """A function that raises what the original raises, or _Exit in place of a SystemExit that it makes."""

    def call(*args, **kwargs):
        try:
            return original(*args, **kwargs)
        except SystemExit as e:
            if type(e) is not SystemExit or any(e is arg for arg in args) or not _ends_here():
                raise
            raise _Exit(*e.args) from None

    return call


def _note_exit(code):
    try:
        if _has_cause or code is None or os.getpid() != _pid:
            return
        if isinstance(code, int):
            _native.set_exit_cause(None, code & 255)
        else:
            _native.set_exit_cause(_clean(str(code)), 1)
    except Exception:
        pass  # the process ends, with this code


def _clean(text):
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
