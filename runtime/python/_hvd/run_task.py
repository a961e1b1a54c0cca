# SPDX-License-Identifier: Apache-2.0
"""run_task.py DIR: one rank of horovod.run(): calls the function of DIR and writes DIR/rank.N.

Started by run.py through horovodrun. Not imported: its own folder leaves sys.path first, so that
no module of ours hides one of the user's.
"""

import os
import pickle
import socket
import sys
import time
import traceback


def write(directory, name, data):
    """Writes the file atomically, even if this process is killed."""
    path = os.path.join(directory, name)
    with open(path + ".new", "wb") as f:
        f.write(data)
    os.replace(path + ".new", path)


def load(directory):
    path = os.path.join(directory, "function")
    try:
        with open(path, "rb") as f:
            sys.path[:] = pickle.load(f)
            return pickle.load(f)
    except OSError as e:
        if e.filename != path:
            raise
        sys.exit(
            f"horovod.run: {path} cannot be read on host {socket.gethostname()} ({e.strerror}): with other "
            "hosts HVD_RUN_DIR must name a folder that all of them share"
        )


def raised(exception):
    """What the caller receives of an exception."""
    # The first frame is ours.
    frames = exception.__traceback__.tb_next or exception.__traceback__
    text = "".join(traceback.format_exception(type(exception), exception, frames))
    try:
        body = pickle.dumps(exception)
    except Exception:
        body = b""
    # A rank that only lost another one: by torch's exception, or by TensorFlow's.
    consequences = ("HorovodInternalError", "UnknownError")
    return {
        "at": time.time(),
        "host": socket.gethostname(),
        "text": text,
        "summary": traceback.format_exception_only(type(exception), exception)[-1].strip(),
        "is_consequence": type(exception).__name__ in consequences,
        "exception": body,
    }


def call(directory):
    """What is written about the end of this rank, and its exit code."""
    try:
        func, args, kwargs = load(directory)
        value = func(*args, **kwargs)
    except Exception as e:  # the caller prints its traceback, once for all ranks
        ending = sys.modules.get("_hvd.ending")
        return raised(e), ending.report(e) if ending else 1
    from _hvd import pickling

    try:
        return {"value": pickling.dumps_whole(value)}, 0
    except Exception as e:
        e.args = (f"the result of type {type(value).__name__} cannot be pickled: {e}",)
        return raised(e), 1


def main():
    directory = sys.argv[1]
    del sys.path[0]
    rank, size = os.environ["HOROVOD_RANK"], int(os.environ["HOROVOD_SIZE"])
    end, code = call(directory)
    write(directory, f"rank.{rank}", pickle.dumps({"size": size, **end}))
    sys.exit(code)


if __name__ == "__main__":
    main()
