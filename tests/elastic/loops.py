# SPDX-License-Identifier: Apache-2.0
"""What fit.py and hooks.py share: the record of a loop that calls hooks, and the deaths of ranks in it.

--die STEP:begin  the last rank of the world is killed when it has written the samples of that step
--die STEP:end    the same after the step's collective and before its commit, which others may reach
Each happens once in a job: DIR/died-STEP says that it has.
"""

import argparse
import contextlib
import os
import signal

from record import Writer, next_world

BATCH = 12  # samples of a step, of all ranks; in a world of 1, 2, 3, 4 or 6


class Trace:
    """This process' record; world: the one that it is in (0: none yet)."""

    def __init__(self, hvd, allgather_object, args, imported_ns):
        self.hvd, self.allgather_object = hvd, allgather_object
        self.args, self.world = args, 0
        self._writer = Writer(args.records, imported_ns)

    def enter(self, state):
        """Called by all ranks of a new world, when they have the same state."""
        self.world = max(self.allgather_object(next_world(self.world)))
        self._writer.add("world", self.world, self.hvd.size(), self.hvd.rank(), state.epoch, state.step)

    def begin(self, state, samples):
        """Before a step's collective."""
        self._writer.add("try", self.world, state.epoch, state.step + 1, self.hvd.rank(), samples)
        self._die(f"{state.step + 1}:begin")

    def end(self, state):
        """After it; state.step is this step."""
        self._die(f"{state.step}:end")

    def save(self, state):
        if self.world:
            self._writer.add("save", self.world, state.step)

    def finish(self, state, n_samples, digest):
        if self.hvd.rank() == 0:
            self._writer.add("end", state.epoch, state.step, n_samples, digest)

    def _die(self, where):
        if where not in self.args.die or self.hvd.rank() != self.hvd.size() - 1:
            return
        with contextlib.suppress(FileExistsError):
            step = where.partition(":")[0]
            os.close(os.open(os.path.join(self.args.records, f"died-{step}"), os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)


def parse_args():
    parser = argparse.ArgumentParser(description="Elastic training by hooks that leaves a record.")
    parser.add_argument("--records", metavar="DIR", required=True, help="where the record goes")
    parser.add_argument("--steps", type=int, default=6, help="of an epoch (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--die", metavar="STEP:begin|end", action="append", default=[])
    return parser.parse_args()
