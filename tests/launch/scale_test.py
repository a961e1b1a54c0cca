#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that are scaled: several agents on this machine, whose world files change. TAP.

usage: scale_test.py [PART OF A NAME ...]     as agent_test.py
"""

import os
import random
import signal
import tempfile
import time

from agent_test import BIN, SEED, Job, failure, free_port
from launched import scratch
from metrics_test import scrape
from tap import has, is_alive, main, read, same, say, wait_until, write

# What a training script of several generations looks like: it writes its place and stays until the job
# is to end well (file `done`).
TRAIN = (
    "echo $$ > {0}/pid.$HVD_GENERATION.$HOROVOD_RANK; "
    'printf "%s %s %s\\n" $HVD_GENERATION $HOROVOD_RANK $HOROVOD_SIZE >> {0}/ran; '
    "while [ ! -e {0}/done ]; do sleep 0.02; done"
)


class Scaled(Job):
    """A job whose workers each have a world file."""

    def world(self, index, generation, workers):
        self.write_world(index, f"{generation} {workers}")

    def write_world(self, index, text):
        """As the kubelet does it: the file is a link into a folder ..data, a link that is moved."""
        top = f"{self.folder}/volume.{index}"
        data = tempfile.mkdtemp(prefix="data-", dir=self.folder)
        write(f"{data}/world", text)
        if not os.path.isdir(top):
            os.mkdir(top)
            os.symlink("..data/world", f"{top}/world")
        os.symlink(data, f"{top}/..data_tmp")
        os.rename(f"{top}/..data_tmp", f"{top}/..data")

    def begin(self, index, *command, generation=0, workers=None, **more):
        """Starts a worker whose pod was made for this world."""
        workers = workers or self.workers
        self.world(index, generation, workers)
        return self.start(
            index,
            *(command or ("sh", "-c", TRAIN.format(self.folder))),
            HVD_GENERATION=str(generation),
            HVD_NUM_WORKERS=str(workers),
            HVD_NP=str(workers * self.slots),
            HVD_WORLD_FILE=f"{self.folder}/volume.{index}/world",
            **more,
        )

    def begin_all(self, *command, **more):
        for i in range(self.workers):
            self.begin(i, *command, **more)
        return self

    def begin_first(self, *command, **more):
        """Starts all workers and waits for the ranks of the first world."""
        self.begin_all(*command, **more).runs(0, self.workers * self.slots)
        return self

    def scale(self, generation, workers, indices=None):
        for i in range(workers) if indices is None else indices:
            self.world(i, generation, workers)

    def lines(self, generation):
        return [words for words in map(str.split, read(f"{self.folder}/ran").splitlines())
                if words[0] == str(generation)]  # fmt: skip

    def runs(self, generation, size):
        """Waits until all ranks of a generation run, and no others."""
        wait_until(
            lambda: f"{size} ranks of generation {generation} run\n{self.errors()}",
            lambda: len(self.lines(generation)) >= size,
        )
        same(
            sorted(self.lines(generation)),
            [[str(generation), str(i), str(size)] for i in range(size)],
            self.errors(),
        )

    def finish(self, codes=None):
        open(f"{self.folder}/done", "w", encoding="ascii").close()
        same(self.end(), codes or [0] * len(self.agents), self.errors())
        same(scratch(self.folder), [], "scratch")


def waits(job, index, text):
    return wait_until(
        lambda: f"worker {index} says {text}\n{job.errors()}", lambda: text in job.agents[index].err
    )


def test_a_job_grows(folder):
    job = Scaled(folder, 2, 2).begin_first()
    old = [int(read(f"{folder}/pid.0.{i}")) for i in range(4)]
    job.begin(2, generation=1, workers=3)
    job.scale(1, 3)
    job.runs(1, 6)
    same([p for p in old if is_alive(p)], [], "ranks of the old world")
    job.finish()
    same([job.log(i) for i in range(3)], ["", "", ""], "termination logs")


def test_any_file_alone_announces_the_world(folder):
    for index in 0, 1:
        sub = f"{folder}/{index}"
        os.mkdir(sub)
        job = Scaled(sub, 2).begin_first()
        job.scale(1, 3, [index])
        waits(job, 0, "forming another world generation=1 workers=3 before=2")
        job.begin(2, generation=1, workers=3)
        job.runs(1, 3)
        job.finish()


def test_a_job_shrinks_and_the_surplus_ends_well(folder):
    job = Scaled(folder, 3).begin_first()
    job.scale(1, 2)
    job.runs(1, 2)
    same(job.agents[2].end(), 0, job.errors())
    has(job.agents[2].err, "the job continues without this worker generation=1 workers=2")
    same(job.log(2), "")
    job.finish()


def test_a_pod_that_is_deleted_before_the_new_world_is_no_failure(folder):
    job = Scaled(folder, 3).begin_first()
    job.agents[2].signal(signal.SIGTERM)
    wait_until("its rank has ended", lambda: not is_alive(int(read(f"{folder}/pid.0.2"))))
    job.scale(1, 2)
    job.runs(1, 2)
    same(job.agents[2].end(), 0, job.errors())
    job.finish()


def test_ranks_that_fail_because_others_left_are_no_failure(folder):
    """Even if the leaving worker's agent does nothing more after it has forwarded the signal."""
    script = TRAIN.format(folder).replace(
        "sleep 0.02", f"if [ -e {folder}/dead.$HVD_GENERATION ]; then exit 1; fi; sleep 0.02"
    )
    ranks = "bash", "-c", f"trap ': > {folder}/dead.$HVD_GENERATION; exit 5' TERM; " + script
    job = Scaled(folder, 3)
    slow = {"LD_PRELOAD": f"{BIN}/slow-kill.so", "SLOW_KILL_UNTIL": f"{folder}/go"}
    for i in range(3):
        job.begin(i, *ranks, **(slow if i == 2 else {}))
    job.runs(0, 3)
    job.agents[2].signal(signal.SIGTERM)
    wait_until("a rank fails", lambda: not is_alive(int(read(f"{folder}/pid.0.1"))))
    job.scale(1, 2)
    job.runs(1, 2)
    open(f"{folder}/go", "w", encoding="ascii").close()
    job.finish()


def test_a_deleted_worker_without_a_new_world_ends_the_job(folder):
    job = Scaled(folder, 3).begin_first()
    begin = time.monotonic()
    job.agents[2].signal(signal.SIGTERM)
    same(job.end(), [143] * 3, job.errors())
    assert 9 < time.monotonic() - begin < 20
    has(
        job.agents[0].err,
        'a world without this worker may be announced seconds=10 cause="worker 2 received',
    )
    has(job.logs_name(failure(-1, 0, signal.SIGTERM)), "worker 2 received SIGTERM")


def test_a_rank_that_fails_ends_the_job_at_once(folder):
    """A failure that no leaving worker explains ends the job."""
    job = Scaled(folder, 3).begin_first()
    begin = time.monotonic()
    os.kill(int(read(f"{folder}/pid.0.1")), signal.SIGKILL)
    same(job.end(), [137] * 3, job.errors())
    assert time.monotonic() - begin < 8
    job.logs_name(failure(1, 0, 9))


def test_a_hub_killed_while_another_world_is_formed_is_named(folder):
    job = Scaled(folder, 2).begin_first()
    job.scale(1, 3)
    waits(job, 1, "changing to another world generation=1")
    job.agents[0].signal(signal.SIGKILL)
    same(job.end(), [137, 125], job.errors())
    has(job.log(1), "worker 0 (127.0.0.1) was lost: ")


def test_one_of_before_worker_0_s_time_waits_for_its_own_file(folder):
    """It may be left over from an earlier attempt and must not be included."""
    job = Scaled(folder, 3)
    job.begin(0, generation=2)
    job.world(9, 1, 3)
    env = {"HVD_GENERATION": "1", "HVD_WORLD_FILE": f"{folder}/volume.9/world"}
    old = job.start(1, "sh", "-c", TRAIN.format(folder), name="old", **env)
    waits(job, 0, "worker of an older world connected worker=1 generation=1")
    job.begin(2, generation=1)
    waits(job, 0, "worker of an older world connected worker=2 generation=1")
    job.begin(1, generation=2)
    waits(job, 0, "worker connected worker=1 host=")
    waits(job, 0, "present=2 of=3")  # worker 0, which may be the last, and none of those two
    assert "present=3" not in job.agents[0].err
    job.world(2, 2, 3)
    job.runs(2, 3)
    job.finish()
    same(old.end(), 0, old.err)
    same(job.lines(1), [], "ranks of an old world")


def test_a_repeated_or_late_or_wrong_world_changes_nothing(folder):
    job = Scaled(folder, 2).begin_first()
    job.scale(3, 2)
    job.runs(3, 2)
    job.scale(3, 2)
    job.scale(2, 1)
    for text in ("four 2", "5"):
        job.write_world(1, text)
        waits(job, 1, "the world file is invalid, ignoring it until it changes")
    job.scale(6, 2, [0])
    job.runs(6, 2)
    same(job.agents[1].err.count("ignoring it until"), 1)
    same(sorted({w[0] for w in map(str.split, read(f"{folder}/ran").splitlines())}), ["0", "3", "6"])
    job.finish()


def test_a_job_without_world_files_has_one_world(folder):
    job = Scaled(folder, 2)
    job.env["HVD_GENERATION"] = "0"
    for i in 0, 1:
        job.start(i, "sh", "-c", TRAIN.format(folder))
    job.runs(0, 2)
    late = job.begin(2, generation=1, workers=3, HVD_START_TIMEOUT="30")
    same(late.end(), 125)
    has(job.log(2), "cannot be scaled")
    del job.agents[2]
    job.finish()


def test_a_finished_job_forms_no_new_world(folder):
    job = Scaled(folder, 2)
    job.begin(0, "sh", "-c", f"echo 0 >> {folder}/ends")
    job.begin(1, "sh", "-c", f"echo 1 >> {folder}/ends; while [ ! -e {folder}/go ]; do sleep 0.02; done")
    wait_until("both ran", lambda: len(read(f"{folder}/ends").split()) == 2)
    open(f"{folder}/go", "w", encoding="ascii").close()
    job.scale(1, 2)
    same(job.end(), [0, 0], job.errors())
    # either the world was too late, or all ranks ran again
    assert len(read(f"{folder}/ends").split()) in (2, 4)


def test_ranks_that_ignore_sigterm_are_killed(folder):
    job = Scaled(folder, 2).begin_first("sh", "-c", "trap '' TERM; " + TRAIN.format(folder))
    job.scale(1, 1)
    job.runs(1, 1)
    same(job.agents[1].end(), 0, job.errors())
    job.finish()


def test_a_stop_that_takes_long_loses_nobody(folder):
    """The hub and its agents exchange messages while ranks are being stopped: the 5 s before SIGKILL."""
    job = Scaled(folder, 2, HVD_PEER_TIMEOUT="4").begin_first(
        "bash", "-c", "trap 'sleep 4.8; exit 1' TERM; " + TRAIN.format(folder)
    )
    job.scale(1, 2)
    job.runs(1, 2)
    job.finish()


def test_the_runtime_forms_the_new_world(folder):
    script = f"{BIN}/launch-world 3 > {folder}/sum.$HVD_GENERATION.$HOROVOD_RANK && " + TRAIN.format(folder)
    job = Scaled(folder, 2).begin_first("sh", "-c", script)
    job.begin(2, "sh", "-c", script, generation=1, workers=3)
    job.runs(1, 3)
    job.scale(2, 1)
    job.runs(2, 1)
    for generation, size in ((0, 2), (1, 3), (2, 1)):
        for rank in range(size):
            has(read(f"{folder}/sum.{generation}.{rank}"), "fused=")
    same(job.agents[1].end(), 0)
    job.finish()


def test_a_world_in_the_middle_of_allreduces(folder):
    """Ranks that are stopped while they compute and wait for each other: no failure in any order."""
    train = f"echo up >> {folder}/up.$HVD_GENERATION; exec {BIN}/launch-world $STEPS"
    job = Scaled(folder, 3, STEPS="100000000").begin_all("sh", "-c", train)
    size = 3
    for generation in range(1, 5):
        wait_until(
            lambda: f"generation {generation - 1} runs\n{job.errors()}",  # noqa: B023
            lambda: len(read(f"{folder}/up.{generation - 1}").split()) == size,  # noqa: B023
        )
        size = 2 if size == 3 else 3
        if size == 3:
            same(job.agents[2].end(), 0, job.errors())
            job.begin(2, "sh", "-c", train, generation=generation, workers=3)
        job.scale(generation, size)
    wait_until("the last world runs", lambda: len(read(f"{folder}/up.4").split()) == size)
    same([a.process.poll() for a in job.agents.values()], [None] * 3, job.errors())
    job.agents[0].signal(signal.SIGKILL)
    same(job.end(), [137, 125, 125], job.errors())


def test_random_worlds(folder):
    """Any order of news, newcomers and deletions leads to the last world."""
    say(f"# SEED={SEED}")
    rng = random.Random(SEED)
    job = Scaled(folder, 2).begin_all()
    size = 2
    for generation in range(1, 8):
        new = rng.randrange(1, 5)
        steps = [("file", i) for i in range(min(size, new))]
        steps += [("new", i) for i in range(size, new)] + [("delete", i) for i in range(new, size)]
        rng.shuffle(steps)
        if rng.random() < 0.6:
            job.runs(generation - 1, size)
        for what, i in steps:
            if what == "file":
                job.world(i, generation, new)
            elif what == "delete":
                job.agents[i].signal(signal.SIGTERM)
            else:
                job.begin(i, generation=generation, workers=new)
        for i in range(new, size):  # 143: the hub had not received its HELLO
            code = job.agents[i].end()
            early = not job.agents[i].err or "SIGTERM before the job started" in job.agents[i].err
            same(code, 143 if early else 0, f"seed {SEED}: {job.errors()}")
        size = new
    job.runs(7, size)
    for i in range(size, len(job.agents)):
        del job.agents[i]
    job.finish()


def test_metrics_show_the_generation(folder):
    port = free_port()
    job = Scaled(folder, 1)
    job.begin(0, HVD_METRICS_PORT=str(port))
    job.runs(0, 1)
    has(scrape(port), "hvd_agent_generation 0\n")
    job.scale(4, 1)
    job.runs(4, 1)
    has(scrape(port), "hvd_agent_generation 4\n")
    job.finish()


if __name__ == "__main__":
    main(globals(), at_once=4)
