# SPDX-License-Identifier: Apache-2.0
"""An elastic state of variables."""

from harness import N, hvd, symbol, tf
from horovod.tensorflow import elastic


@symbol("horovod.tensorflow.elastic.run", "horovod.tensorflow.elastic.TensorFlowState")
def run_goes_on_from_the_commit(t):
    v = tf.Variable([0.0])
    state = elastic.TensorFlowState([v], step=0)
    resets, tries = [], []
    state.register_reset_callbacks([lambda: resets.append(1)])

    @hvd.elastic.run
    def train(state, more):
        tries.append(state.step)
        while state.step < 3:
            v.assign_add(hvd.allreduce(tf.constant([1.0 + more]), op=hvd.Sum))
            state.step += 1
            if len(tries) == 1 and state.step == 2:
                raise hvd.HorovodInternalError("as when a rank was lost")
            state.commit()
        return "done"

    assert train(state, more=1) == "done"
    assert tries == [0, 1] and resets == [1], (tries, resets)
    t.equal(v.read_value(), [3 * 2 * N])
