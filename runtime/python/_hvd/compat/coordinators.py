# SPDX-License-Identifier: Apache-2.0
"""The threads of TensorFlow's ClusterCoordinator end before the interpreter does.

A coordinator has a daemon thread for each worker. The last fit() or evaluate() of a program returns as
soon as all batches are done; then one of these threads may still create the iterator of a worker that was
late, because join() waits for no resources. Python ends a daemon thread where it asks for the interpreter
again. In TensorFlow that is inside of C++, which may abort the process of a program that has succeeded.
TensorFlow stops the threads in the coordinator's __del__, at the earliest while modules are torn down: too
late, and it does not wait for them. So an exit function does both.
"""

import atexit
import functools
import threading
import time
import weakref

_LIMIT_S = 30  # of a thread whose worker neither answers nor is lost
_NAMES = "WorkerClosureProcessingLoop", "WorkerPreemptionHandler"
_started = weakref.WeakSet()


def install(tf):
    """Before the program registers its exit functions, which run before this one."""
    coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator
    given = coordinator.__init__

    @functools.wraps(given)
    def __init__(self, *args, **kwargs):
        given(self, *args, **kwargs)
        _started.add(self)

    coordinator.__init__ = __init__
    atexit.register(_stop)


def _stop():
    for coordinator in _started:
        coordinator.__del__()  # it only stops the threads, and may be called again
    limit = time.monotonic() + _LIMIT_S
    for thread in threading.enumerate():
        if thread.name.startswith(_NAMES):
            thread.join(max(0, limit - time.monotonic()))
