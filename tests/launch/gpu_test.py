#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks on GPUs, which NVIDIA's libraries as fakes stand in for (tests/fakes/cuda): what a job says of
a GPU or a rank that failed, and what is reported of a host's GPUs. TAP.

usage: gpu_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

import glob
import os
import re
import shutil
import signal
import sys
import time

from agent_test import AGENT, Job, failure
from launched import BIN, HOROVODRUN, ROOT, environment, executable, run, run_ranks, start, up
from tap import Program, has, is_alive, main, read, same, wait_until, write

FAKES = os.path.join(os.path.dirname(BIN), "fakes")
RANK = os.path.join(BIN, "launch-gpu-world")
ALIVE_S = 1.0  # how long a survivor may outlive the death of a rank, its process' end included
SLACK_S = float(os.environ.get("LAUNCH_TEST_SLACK_S", "1"))  # a loaded machine's


def fakes(**more):
    return {"LD_LIBRARY_PATH": FAKES, "HVD_FAKE_GPUS": "3", "HVD_FAKE_HANG_S": "600", **more}


def gpus(folder, **more):
    """The environment of horovodrun beside the fakes."""
    return environment(TMPDIR=folder, **fakes(**more))


def rank_on_gpu(folder, steps=0):
    """A rank whose faults can be set while it runs (fault)."""
    return ["sh", "-c", f"HVD_FAKE_FILE={folder}/faults.$HOROVOD_RANK exec {RANK} {steps} {folder}"]


def fault(folder, rank, text):
    write(f"{folder}/.faults", text)
    os.rename(f"{folder}/.faults", f"{folder}/faults.{rank}")


def begin(folder, n=3, **more):
    program = start(folder, "-np", str(n), *rank_on_gpu(folder), env=gpus(folder, **more))
    return program, up(folder, n)


def ended_in(pids):
    """Seconds until none of these is alive."""
    since = time.monotonic()
    wait_until("the survivors end", lambda: not any(is_alive(p) for p in pids))
    return time.monotonic() - since


def test_ranks_train_on_their_gpus(folder):
    program = run(folder, "-np", "3", *rank_on_gpu(folder, 20), env=gpus(folder))
    same(program.out.count("done\n"), 3, program.out + program.err)


def test_a_failure_of_a_gpu_is_the_jobs_cause(folder):
    """An XID is in front of the error of CUDA that follows from it."""
    xid_79 = ": XID 79 (GPU has fallen off the bus) on GPU 1 (PCI 0000:11:00.0) of rank 1 (host localhost): the GPU or its slot"
    xid_31 = ": XID 31 (GPU memory page fault) on GPU 2 (PCI 0000:12:00.0) of rank 2"
    for rank, faults, why, more in (
        (1, "xid=79", re.escape(xid_79), ""),
        (2, "xid=31,kernel_error=700@5", re.escape(xid_31), "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (0, "kernel_error=700@5", r": .*rank 0 \(host localhost.*CUDA_ERROR_ILLEGAL_ADDRESS", ""),
        (1, "async_error=1:3", "", "NCCL asynchronous error on rank 1 (host localhost), GPU 1 "),
    ):
        sub = f"{folder}/{faults}"
        os.mkdir(sub)
        program, pids = begin(sub)
        fault(sub, rank, faults)
        took = ended_in(pids)
        same(program.end(), 1)
        sentence = rf"horovodrun: rank {rank} on localhost exited with code 1{why}"
        assert re.search(sentence, program.err), program.err
        has(program.err, more)
        print(f"# {took:.2f} s from {faults} to the end of all ranks")


def test_a_local_rank_beyond_the_gpus_is_named(folder):
    program = run(folder, "-np", "3", *rank_on_gpu(folder, 3), env=gpus(folder, HVD_FAKE_GPUS="2"), code=1)
    has(
        program.err,
        '[2]<stderr>:HorovodInternalError: tensor "gradient": device 2: there is no CUDA device 2: 2 are visible; start fewer ranks on this host',
    )
    has(program.err, "horovodrun: rank 2 on localhost exited with code 1\n")


def test_a_rank_without_a_gpu_is_named_on_all_ranks(folder):
    """Its driver exists, and no GPU is visible."""
    rank = f"[ $HOROVOD_RANK = 1 ] && export CUDA_VISIBLE_DEVICES=; exec {RANK} 3 {folder}"
    program = run_ranks(folder, 2, rank, env=gpus(folder), code=1)
    has(
        program.err,
        '[1]<stderr>:HorovodInternalError: tensor "gradient": device 1: no CUDA device is visible (CUDA_VISIBLE_DEVICES=',
    )
    named = r"\[0\]<stderr>:HorovodInternalError: .*rank 1 \(host localhost, pid \d+\)"
    assert re.search(named, program.err), program.err
    has(program.err, "horovodrun: rank 1 on localhost exited with code 1\n")


def test_a_mask_for_each_rank_is_taken(folder):
    """As Slurm or a device plugin gives it: each rank sees one GPU, as device 0."""
    rank = f"export CUDA_VISIBLE_DEVICES=$HOROVOD_LOCAL_RANK HVD_TEST_DEVICE=0; exec {RANK} 3 {folder}"
    program = run_ranks(folder, 3, rank, env=gpus(folder))
    same(program.out.count("done\n"), 3, program.out + program.err)


def test_a_killed_rank_is_the_cause_and_not_nccls_lost_peer(folder):
    """Survivors hang in a kernel, or NCCL reports the loss: both exit at once."""
    for name, death in (("hang", ""), ("error", "peer_death=error")):
        took = []
        while not took or (min(took) >= ALIVE_S + SLACK_S and len(took) < 3):
            took.append(killed_rank(f"{folder}/{name}.{len(took)}", death))
        print(f"# {name}: {min(took):.2f} s from the kill to the end of the survivors")
        assert min(took) < ALIVE_S + SLACK_S, took


def killed_rank(folder, death):
    """How long the survivors live on. The best of three counts, others may have the processors."""
    os.mkdir(folder)
    for r in range(3):
        fault(folder, r, death)
    program, pids = begin(folder)
    os.kill(pids[1], signal.SIGKILL)
    took = ended_in(pids[:1] + pids[2:])
    same(program.end(), 137, program.err)
    has(program.err, "horovodrun: rank 1 on localhost was killed by signal 9 (SIGKILL)\n")
    return took


def test_all_termination_messages_carry_the_xid(folder):
    """Worker 0 dies first, as a consequence; the XID is worker 1's."""
    job = Job(folder, 2, 1, **fakes(HVD_FAKE_FILE=f"{folder}/faults"))
    xid = r"XID 79 \(GPU has fallen off the bus\) on GPU 0 \(PCI 0000:10:00\.0\) of rank 1 \(host \S+\): the GPU or its slot"
    job.start(0, RANK, "0", folder, HVD_FAKE_HOST="a")
    job.start(1, "sh", "-c", f"HVD_FAKE_FILE={folder}/faults.1 exec {RANK} 0 {folder}", HVD_FAKE_HOST="b")
    job.ranks_up(2)
    fault(folder, 1, "xid=79")
    same(job.end(), [1, 1], job.errors())
    job.logs_name(failure(1, 1) + '"' + xid)
    for agent in job.agents.values():
        assert re.search(r"rank 1 on \S+ exited with code 1: " + xid, agent.err), agent.err


def check_build(folder, **more):
    """With a Python of its own, which sees no package but those of PYTHONPATH."""
    os.makedirs(f"{folder}/bin", exist_ok=True)
    executable(f"{folder}/bin/python", f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    env = environment(TMPDIR=folder, PATH=f"{folder}/bin:/usr/bin:/bin", **more)
    return run(folder, "--check-build", env=env).out


def test_check_build_lists_gpus(folder):
    out = check_build(folder, **fakes())
    has(out, "\nAvailable Tensor Operations:\n    [X] NCCL\n")
    has(out, f"    [X] GPU tensors: NCCL 2.27.5 ({FAKES}/libnccl.so.2)\n")
    has(out, "    NVIDIA driver: 550.54.15, for CUDA 12.4\n    GPU 0: NVIDIA Fake, 8192 MiB, sm_90, GPU-")
    has(out, "    GPU 2: NVIDIA Fake")
    has(out, "    GPU kernels: sm_70 ")
    has(out, "    NVLink: 0-1:2 2-switch:2\n")
    out = check_build(folder, **fakes(HVD_FAKE_OLD="2"))
    has(out, "    [X] NCCL\n")
    same(out.count("too old"), 1)
    has(out, "-000000000002, too old: sm_70 or later is required\n")
    out = check_build(folder, **fakes(HVD_FAKE_MIG="1"))
    has(out, ", a MIG instance\n")


def test_check_build_shows_the_stream_ordering_of_tensorflow(folder):
    os.makedirs(f"{folder}/packages/tensorflow")
    write(f"{folder}/packages/tensorflow/__init__.py", "")
    event, waits = "by an event of the whole context", "by synchronising its device before each operation"
    for way, more in (
        (event, {"HVD_FAKE_CUDA": "12050"}),
        (event, {"HVD_FAKE_CUDA": "13000"}),
        (waits, {"HVD_FAKE_CUDA": "12040"}),
        (waits, {"HVD_FAKE_CUDA": "12050", "HVD_GPU_READY": "Sync"}),
        ("through host memory; ", {"HVD_GPU": "off"}),
    ):
        out = check_build(folder, **fakes(PYTHONPATH=f"{folder}/packages", **more))
        has(out, f"    tensorflow's stream ordering: {way}")


def test_check_build_names_the_one_problem(folder):
    for part, more in (
        ("no CUDA device is visible (CUDA_VISIBLE_DEVICES='')\n", fakes(CUDA_VISIBLE_DEVICES="")),
        (f"NCCL was not found: tried HVD_NCCL_LIB: {folder}/none", fakes(HVD_NCCL_LIB=f"{folder}/none")),
        ("HVD_GPU=off\n", fakes(HVD_GPU="off")),
        ("HVD_GPU=off\n", fakes(HVD_GPU="OFF")),
        ("HVD_GPU: 'on' is not one of: auto off\n", fakes(HVD_GPU="on")),
        ("the driver is for CUDA 10.2; ", fakes(HVD_FAKE_CUDA="10020")),
    ):
        out = check_build(folder, **more)
        has(out, f"    [ ] GPU tensors: {part}")
        has(out, "    [ ] NCCL\n")


def test_check_build_takes_the_frameworks_nccl(folder):
    """The wheel of NCCL, in the Python of PATH, on a system that has none."""
    os.makedirs(f"{folder}/packages/nvidia/nccl/lib")
    os.mkdir(f"{folder}/libs")
    for name in os.listdir(FAKES):
        if "nccl" not in name:
            os.symlink(f"{FAKES}/{name}", f"{folder}/libs/{name}")
    shutil.copy(f"{FAKES}/libnccl.so.2", f"{folder}/packages/nvidia/nccl/lib/libnccl.so.2")
    out = check_build(folder, **fakes(LD_LIBRARY_PATH=f"{folder}/libs", PYTHONPATH=f"{folder}/packages"))
    has(out, f"    [X] GPU tensors: NCCL 2.27.5 ({folder}/packages/nvidia/nccl/lib/libnccl.so.2)\n")


def host(folder, control=True, version="570.86.10"):
    """The root of a host with NVIDIA's driver, for HVD_TEST_ROOT."""
    os.makedirs(f"{folder}/host/proc/driver/nvidia")
    os.mkdir(f"{folder}/host/dev")
    write(
        f"{folder}/host/proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Wed Jan  8 2025\nGCC version:  gcc 12.2.0\n",
    )
    if control:
        write(f"{folder}/host/dev/nvidiactl", "")
    return f"{folder}/host"


def with_hvd_gpu(folder, text=None):
    """Programs beside another hvd-gpu, or beside none; returns the agent."""
    os.mkdir(f"{folder}/bin")
    for name in "hvd-agent", "horovodrun":
        shutil.copy(f"{BIN}/{name}", f"{folder}/bin/{name}")
    if text:
        executable(f"{folder}/bin/hvd-gpu", f"#!/bin/sh\n{text}\n")
    return f"{folder}/bin/hvd-agent"


def one_agent(folder, wait_for="", program=AGENT, **more):
    """The log of an agent whose rank exits when the line was logged."""
    job = Job(folder, 1, **more)
    agent = job.start(0, *loop_until(folder), program=program)
    wait_until(wait_for, lambda: wait_for in agent.err)
    write(f"{folder}/end", "")
    same(job.end(), [0], job.errors())
    return agent.err


def loop_until(folder):
    return ["sh", "-c", f"while [ ! -e {folder}/end ]; do sleep 0.02; done"]


def test_the_agent_logs_its_gpus_at_its_start(folder):
    log = one_agent(folder, wait_for="GPU links", **fakes(HVD_TEST_ROOT=host(folder)))
    for part in (
        'GPU index=0 model="NVIDIA Fake" uuid=GPU-',
        " memory_mib=8192 sm=90 mig=no\n",
        "GPU index=2 ",
        f'GPU driver driver=550.54.15 cuda=12.4 nccl=2.27.5 nccl_path={FAKES}/libnccl.so.2 kernels="sm_70 ',
        'GPU links nvlink="0-1:2 2-switch:2" ib="',
    ):
        has(log, part)
    same(log.count("GPU index="), 3)


def test_the_agent_logs_why_gpus_cannot_be_used(folder):
    log = one_agent(
        folder,
        wait_for="GPU tensors are not possible",
        **fakes(HVD_TEST_ROOT=host(folder), CUDA_VISIBLE_DEVICES=""),
    )
    has(
        log,
        'W hvd-agent[worker 0]: GPU tensors are not possible here, continuing cause="no CUDA device is visible',
    )


def test_a_container_without_the_hosts_gpus_is_logged(folder):
    """The kernel's driver exists, its library does not."""
    agent = with_hvd_gpu(folder, 'echo "problem no NVIDIA driver here (x)"')
    for control, line in (
        (False, 'I hvd-agent[worker 0]: no GPU here cause="no'),
        (True, 'W hvd-agent[worker 0]: GPU tensors are not possible here, continuing cause="no'),
    ):
        os.mkdir(f"{folder}/{control}")
        log = one_agent(
            f"{folder}/{control}",
            wait_for="NVIDIA driver here",
            program=agent,
            HVD_TEST_ROOT=host(f"{folder}/{control}", control),
        )
        has(
            log,
            line + " NVIDIA driver here (x); the kernel has one: this container was started without GPUs (",
        )


def test_nothing_is_logged_without_a_driver(folder):
    os.mkdir(f"{folder}/host")
    assert "GPU" not in one_agent(folder, **fakes(HVD_TEST_ROOT=f"{folder}/host"))


def test_an_image_without_hvd_gpu_logs_the_kernels_driver(folder):
    """Its loader is not there, or it is not installed: the agent alone is static."""
    root = host(folder)
    agent = with_hvd_gpu(folder)
    more = fakes(HVD_TEST_ROOT=root)
    log = one_agent(folder, wait_for="GPUs are unknown", program=agent, **more)
    has(log, 'GPU driver driver=570.86.10 cuda=- nccl=- nccl_path=- kernels=""\n')
    has(log, f"hvd-gpu cannot run here: {folder}/bin/hvd-gpu does not exist")
    executable(f"{folder}/bin/hvd-gpu", "#!/no/such/loader\n")
    os.unlink(f"{folder}/end")
    log = one_agent(folder, wait_for="GPUs are unknown", program=agent, **more)
    has(log, 'GPUs are unknown driver=570.86.10 cause="hvd-gpu cannot run here: ')


def test_a_driver_that_hangs_holds_up_no_job(folder):
    script = f"echo $$ > {folder}/.pid; mv {folder}/.pid {folder}/pid; exec sleep 600"
    program = with_hvd_gpu(folder, script)
    job = Job(folder, 1, **fakes(HVD_TEST_ROOT=host(folder)))
    agent = job.start(0, *loop_until(folder), program=program)
    pid = int(wait_until("hvd-gpu runs", lambda: read(f"{folder}/pid")))
    wait_until("ranks run all the same", lambda: "ranks started" in agent.err)
    write(f"{folder}/end", "")
    same(job.end(), [0], job.errors())
    wait_until("hvd-gpu has gone with the agent", lambda: not is_alive(pid))


def several(folder):
    """Variables under which ssh to any host leads to this one."""
    script = f"{folder}/myssh"
    if not os.path.exists(script):
        executable(script, '#!/bin/sh\nSSH_CONNECTION="127.0.0.1 1 127.0.0.1 22" exec sh -c "$2"\n')
    return {"HVD_SSH": script, "TMPDIR": folder}


def told(folder, *where, n=1, program=HOROVODRUN, **more):
    """The lines about GPUs of a horovodrun whose ranks wait for them."""
    if os.path.exists(f"{folder}/end"):
        os.unlink(f"{folder}/end")
    env = environment(**several(folder), **more)
    job = Program([program, *where, *loop_until(folder)], env, folder, str(len(os.listdir(folder))))
    wait_until(f"{n} lines", lambda: job.err.count("GPUs:") == n)
    write(f"{folder}/end", "")
    same(job.end(), 0, job.err)
    return [x for x in job.err.splitlines() if "GPUs:" in x]


SAID = f"GPUs: 3 x NVIDIA Fake (8192 MiB, sm_90); driver 550.54.15, CUDA 12.4, NCCL 2.27.5 ({FAKES}/libnccl.so.2); NVLink 0-1:2 2-switch:2"


def test_horovodrun_prints_one_line_of_gpus_per_host(folder):
    """Its own host has an agent too; the one by ssh has ranks of the same variables."""
    more = fakes(HVD_TEST_ROOT=host(folder))
    for where, heads in (
        (["-H", "localhost:1,b:1"], ["horovodrun: host b: ", "horovodrun: host localhost: "]),
        ([], ["horovodrun: "]),
    ):
        lines = told(folder, "-np", "2", *where, "--verbose", n=len(heads), **more)
        same(sorted(x.split("; InfiniBand")[0] for x in lines), [head + SAID for head in heads])


def test_gpus_are_not_printed_without_verbose(folder):
    """Without --verbose, and where no driver is loaded, nothing is asked."""
    root = host(folder)
    with_hvd_gpu(folder, f"echo asked >> {folder}/asked")
    os.mkdir(f"{folder}/none")
    for where in ["-np", "1"], ["-np", "1", "-H", "b:1"]:
        for flags, at in ([], root), (["--verbose"], f"{folder}/none"):
            env = environment(**several(folder), **fakes(HVD_TEST_ROOT=at))
            job = Program([f"{folder}/bin/horovodrun", *where, *flags, "true"], env, folder, "run")
            same(job.end(), 0, job.err)
            assert "GPUs:" not in job.err, job.err
    assert not os.path.exists(f"{folder}/asked")
    told(
        folder, "-np", "1", "-H", "b:1", "--verbose", program=f"{folder}/bin/horovodrun", HVD_TEST_ROOT=root
    )
    assert os.path.exists(f"{folder}/asked")


def hanging(folder, where):
    """A job whose ranks run while hvd-gpu hangs on each host; afterwards it has gone."""
    env = environment(**several(folder), **fakes(HVD_TEST_ROOT=f"{folder}/host"))
    command = ["sh", "-c", f"echo here; while [ ! -e {folder}/end ]; do sleep 0.02; done"]
    job = Program([f"{folder}/bin/horovodrun", *where, "--verbose", *command], env, folder, "run")
    pids = wait_until(
        "hvd-gpu runs", lambda: [int(read(p)) for p in glob.glob(f"{folder}/pid.*") if read(p)]
    )
    wait_until("ranks run all the same", lambda: job.out.count("here") == 2)
    since = time.monotonic()
    write(f"{folder}/end", "")
    same(job.end(), 0, job.err)
    took = time.monotonic() - since
    assert took < 3 + SLACK_S, f"the end was held up for {took:.1f} s, of 10 that hvd-gpu has"
    wait_until("hvd-gpu has gone with its agents", lambda: not any(is_alive(p) for p in pids))
    for path in [*glob.glob(f"{folder}/pid.*"), f"{folder}/end"]:
        os.unlink(path)


def test_a_driver_that_hangs_holds_up_no_job_of_several_hosts(folder):
    host(folder)
    with_hvd_gpu(folder, f"echo $$ > {folder}/pid.$$; exec sleep 600")
    hanging(folder, ["-np", "2"])
    hanging(folder, ["-np", "2", "-H", "localhost:1,b:1"])


PAGE = os.path.join(ROOT, "runtime/backend/nccl/README.md")


def test_the_page_shows_what_check_build_prints(folder):
    printed = check_build(folder, **fakes())
    block = re.search(r"^    Available Tensor Operations:\n(?:    .*\n)+", read(PAGE), re.M)[0]
    for line in block.splitlines():
        if line.strip() != "...":
            start = re.match(r"(    )?(\[X\] )?[\w ]+", line[4:])[0]
            assert re.search(rf"^{re.escape(start)}", printed, re.M), f"{start!r} is not in:\n{printed}"


def test_the_manual_shows_what_hvd_gpu_prints(folder):
    """Each line of its example has the words of one that is printed; the machine may have no InfiniBand."""

    def form(line):
        return " ".join(re.sub(r"[\w./-]*\d[\w./-]*", "#", line.partition(" NVIDIA")[0]).split()[:6])

    manual = read(os.path.join(os.path.dirname(PAGE), "hvd-gpu.1"))
    shown = re.search(r"^\.Bd -literal.*?\n(.*?)^\.Ed", manual, re.M | re.S)[1]
    program = Program([f"{BIN}/hvd-gpu", "info"], gpus(folder, HVD_FAKE_GPUS="2"), folder, "info")
    same(program.end(), 0, program.err)
    forms = set(map(form, program.out.splitlines()))
    for line in shown.splitlines():
        assert form(line) in forms or line.startswith("ib "), (line, forms)


def test_the_page_has_every_xid_as_it_is_printed(folder):
    code = read(os.path.join(ROOT, "runtime/backend/nccl/nvml_dl.c"))
    table = re.search(r"\} xids\[\] = \{\n(.*?)\n\};", code, re.S)[1]
    table = re.sub(r'"\s+"', "", table)  # a long text stands in two pieces
    rows = re.findall(r'\{(\d+), (?:true|false), (?:true|false), "([^"]+)",\s*"([^"]+)"\}', table)
    same(len(rows), table.count("{"), rows)
    same(re.findall(r"^\| (\d+) \| (.*) \| (.*) \|$", read(PAGE), re.M), rows)
    (advice,) = [r[2] for r in rows if r[0] == "79"]
    sentence = "XID 79 (GPU has fallen off the bus) on GPU 0 (PCI 0000:3B:00.0) of rank 3 (host b): "
    has(read(PAGE), f"{sentence}{advice}\n")


def test_the_page_knows_sentences_that_are_said(folder):
    """Each message of its table is in the code, or in the fakes if NVIDIA's libraries print it."""

    def plain(text):  # numbers and what is put in are one
        return re.sub(r"(?:%(?:\.\d+)?(?:ll)?[a-z])+|\d+(?:\.\d+)*", "#", text)

    said = ""
    for part in ("runtime/backend/nccl", "runtime/engine", "runtime/api", "tests/fakes/cuda"):
        for name in sorted(os.listdir(f"{ROOT}/{part}")):
            if name.endswith(".c"):
                said += re.sub(r'"\s*\n\s*"', "", read(f"{ROOT}/{part}/{name}"))
    said = plain(said)
    table = read(PAGE).split("| message | meaning |")[1].split("| XID | meaning |")[0]
    seen = 0
    for row in re.findall(r"^\| (.*?) \| ", table, re.M):
        for sentence in re.findall(r"`((?!XID)[^`]+)`", row):
            for words in sentence.split(".."):
                words = plain(words).strip(" :#")
                if len(words) < 6 or "(CUDA_ERROR" in words:
                    continue  # put together of CUDA's own words
                assert words in said, (words, sentence)
                seen += 1
    assert seen > 9, seen


def test_the_page_names_variables_that_are(folder):
    known = read(f"{ROOT}/runtime/hvd-environment.7") + read(f"{ROOT}/runtime/doc/metrics.md")
    named = set(re.findall(r"\b(?:HVD|HOROVOD)_[A-Z_0-9]+", read(PAGE)))
    same({n for n in named if n not in known}, set())


if __name__ == "__main__":
    main(globals())
