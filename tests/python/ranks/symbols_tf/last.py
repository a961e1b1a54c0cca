# SPDX-License-Identifier: Apache-2.0
"""What ends the job."""

from harness import N, hvd, symbol, tf


@symbol("shutdown", "init", "is_initialized")
def shutdown(t):
    hvd.shutdown()
    assert not hvd.is_initialized()
    t.fails(ValueError, ["Horovod has not been initialized; use hvd.init()."], hvd.size)
    t.fails(
        (tf.errors.OpError, ValueError), ["Horovod has not been initialized"], hvd.allreduce, tf.ones(2)
    )
    hvd.shutdown()
    hvd.init()
    t.equal(hvd.allreduce(tf.ones(2), op=hvd.Sum), [N, N])
    hvd.shutdown()
