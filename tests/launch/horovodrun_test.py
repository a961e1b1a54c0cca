#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""horovodrun as a whole, with real processes. TAP.

usage: horovodrun_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time

from launched import (
    BIN,
    HOROVODRUN,
    LOOP,
    ROOT,
    UNTIL_GO,
    check_environment,
    environment,
    executable,
    looping,
    met,
    run,
    run_ranks,
    scratch,
    start,
    start_ranks,
    up,
    wait_for_ranks,
)
from tap import Program, children, has, is_alive, main, read, same, wait_until, write

FOREIGN = {  # what outer launchers leave behind
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "9",
    "PMI_RANK": "5",
    "PMI_SIZE": "9",
    "PMIX_RANK": "5",
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "9",
    "SLURM_STEP_ID": "0",
    "RANK": "5",
    "WORLD_SIZE": "9",
    "LOCAL_RANK": "5",
    "HOROVOD_RANK": "5",
    "HOROVOD_SIZE": "9",
    "TORCHELASTIC_RUN_ID": "x",
    "HVD_TOKEN_FILE": "/nowhere",
    "HVD_JOB_ID": "other",
}


def run_env(folder, n, env):
    """Ranks that write what they find."""
    run_ranks(
        folder,
        n,
        f'env -0 > {folder}/env.$HOROVOD_RANK; cat "$HVD_HOSTFILE" > '
        f'{folder}/hosts; stat -c "%a %s" "$HVD_TOKEN_FILE" > {folder}/token; cat "$HVD_TOKEN_FILE" > {folder}/secret',
        env=env,
    )


def test_ranks_get_the_whole_contract(folder):
    run_env(folder, 3, environment(TMPDIR=folder))
    wanted = {
        "HOROVOD_HOSTNAME": "localhost",
        "WORLD_SIZE": 3,
        "LOCAL_WORLD_SIZE": 3,
        "MASTER_ADDR": "127.0.0.1",
        "HVD_GENERATION": 0,
        "PYTHONUNBUFFERED": 1,
    }
    for rank in range(3):
        env = check_environment(
            folder, rank, (rank, 3, rank, 3, 0, 1), RANK=rank, LOCAL_RANK=rank, **wanted
        )
        assert 0 < int(env["MASTER_PORT"]) < 65536
        has(env["HVD_JOB_ID"], "horovodrun/")
    same(read(f"{folder}/hosts"), "localhost slots=3\n", "hostfile")
    same(read(f"{folder}/token"), "600 65\n", "token's mode and size")


def test_sets_of_outer_launchers_are_removed(folder):
    run_env(folder, 2, environment(TMPDIR=folder, KEPT="yes", HOROVOD_CYCLE_TIME="3", **FOREIGN))
    for rank in 0, 1:  # HOROVOD_CYCLE_TIME is a knob of the user
        env = check_environment(folder, rank, (rank, 2), KEPT="yes", HOROVOD_CYCLE_TIME=3, WORLD_SIZE=2)
        left = [n for n in env if n.startswith(("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_"))]
        same(left, [], "left over")


def test_the_token_is_in_no_argument_and_no_environment(folder):
    first, loop = f'cp "$HVD_TOKEN_FILE" {folder}/secret', UNTIL_GO.format(folder)
    program = start(folder, "-np", "2", *looping(folder, first, loop=loop))
    up(folder, 2)
    secret = read(f"{folder}/secret").strip()
    same(len(secret), 64)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for what in "environ", "cmdline":
            try:
                with open(f"/proc/{pid}/{what}", "rb") as f:
                    assert secret.encode() not in f.read(), f"/proc/{pid}/{what}"
            except OSError:
                pass
    open(f"{folder}/go", "w", encoding="ascii").close()
    same(program.end(), 0)


def test_ranks_meet_at_the_rendezvous(folder):
    program = run(folder, "-np", "4", os.path.join(BIN, "launch-rank"), "master")
    same(sorted(program.out.splitlines()), met(4))


def test_a_waiting_rank_receives_which_rank_died(folder):
    # SIGTERM comes 0.3 s after the failure: rank 0 may not even have connected by then
    script = f"[ $HOROVOD_RANK = 0 ] || exit 9; trap '' TERM; exec {BIN}/launch-rank"
    program = run_ranks(folder, 2, script, code=9)
    has(program.err, "rank 1 on localhost exited with code 9")
    has(program.err, "[0]<stderr>:rank: ")


def test_output_is_prefixed_line_by_line(folder):
    program = run_ranks(
        folder,
        2,
        'echo "out $HOROVOD_RANK"; echo "err $HOROVOD_RANK" >&2; echo; '
        'printf "10%%\\r20%%\\r\\nno newline"',
    )
    same(
        sorted(program.out.splitlines()),
        sorted(f"[{i}]<stdout>:{t}" for i in (0, 1) for t in (f"out {i}", "", "10%", "20%", "no newline")),
    )
    same(sorted(program.err.splitlines()), ["[0]<stderr>:err 0", "[1]<stderr>:err 1"])


def test_a_script_without_an_interpreter_line_gets_all_arguments(folder):
    script = executable(f"{folder}/script", "for last; do :; done; echo $# $last\n")
    words = [str(i) for i in range(1, 1001)]
    same(run(folder, "-np", "1", script, *words).out, "[0]<stdout>:1000 1000\n")


def test_the_time_can_be_put_before_the_prefix(folder):
    program = run(folder, "-np", "1", "-prefix-timestamp", "echo", "hello")
    assert re.fullmatch(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\[0\]<stdout>:hello\n", program.out), (
        program.out
    )


def test_much_output_is_neither_lost_nor_mixed(folder):
    code = "import os\nfor i in range(20000): print(os.environ['HOROVOD_RANK'], i)"
    program = run_ranks(folder, 4, code, shell=sys.executable)
    seen = {r: 0 for r in "0123"}
    for line in program.out.splitlines():
        match = re.fullmatch(r"\[(\d)\]<stdout>:(\d) (\d+)", line)
        assert match and match[1] == match[2] and int(match[3]) == seen[match[1]], line
        seen[match[1]] += 1
    same(set(seen.values()), {20000})


def test_output_files_hold_the_bytes_as_they_are(folder):
    program = run_ranks(
        folder, 11, 'printf "a\\rb$HOROVOD_RANK"; echo e >&2', "--output-filename", f"{folder}/logs"
    )
    same(sorted(os.listdir(f"{folder}/logs")), [f"rank.{i:02}" for i in range(11)])
    with open(f"{folder}/logs/rank.07/stdout", "rb") as f:
        same(f.read(), b"a\rb7")
    same(read(f"{folder}/logs/rank.10/stderr"), "e\n")
    has(program.out, "[10]<stdout>:b10")


def test_a_reader_that_is_slow_holds_the_ranks_but_not_the_launcher(folder):
    code = (
        f"import os\nopen('{folder}/up.' + os.environ['HOROVOD_RANK'], 'w')\nwhile True: print('y' * 1000)"
    )
    program = start_ranks(folder, 2, code, shell=sys.executable, stdout=subprocess.PIPE)
    wait_for_ranks(folder)
    status = wait_until("pages", lambda: read(f"/proc/{program.pid}/status"))
    program.signal(signal.SIGTERM)  # no byte was read
    same(program.end(), 143)
    assert int(re.search(r"VmHWM:\s+(\d+)", status)[1]) < 200000


def test_a_slow_reader_gets_everything_after_the_ranks_have_ended(folder):
    script = f"echo $$ > {folder}/pid; seq 1 10000; exit 5"
    program = start_ranks(folder, 1, script, stdout=subprocess.PIPE)
    wait_until(
        "the rank has ended", lambda: read(f"{folder}/pid") and not is_alive(int(read(f"{folder}/pid")))
    )
    try:
        raise AssertionError(f"it did not wait for its reader: {program.process.wait(2.5)}")
    except subprocess.TimeoutExpired:
        pass
    same(program.process.stdout.read().decode(), "".join(f"[0]<stdout>:{i}\n" for i in range(1, 10001)))
    same(program.end(), 5)
    assert "dropped" not in program.err, program.err


def test_a_reader_that_went_away_does_not_end_the_training(folder):
    ours, theirs = os.pipe()
    os.close(ours)
    run_ranks(
        folder,
        1,
        f"for i in 1 2 3 4 5 6 7 8 9; do echo $i || exit 4; done; : > {folder}/done",
        stdout=theirs,
    )
    os.close(theirs)
    assert os.path.exists(f"{folder}/done")


def test_exit_codes_are_the_first_failing_ranks(folder):
    for code in 0, 1, 3, 255:
        run_ranks(folder, 2, f"exit {code}", code=code)
    for number in signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT, signal.SIGUSR1:
        program = run_ranks(folder, 1, f"kill -{int(number)} $$", code=128 + number)
        has(program.err, f"rank 0 on localhost was killed by signal {int(number)}")


def test_the_first_failure_is_named_with_its_last_lines(folder):
    program = run_ranks(
        folder,
        4,
        f'if [ $HOROVOD_RANK = 2 ]; then for i in 1 2 3; do echo "line $i"; done; echo "the cause" >&2; '
        f": > {folder}/dead; exit 3; fi; while [ ! -e {folder}/dead ]; do sleep 0.01; done; sleep 0.05; "
        'echo "HorovodInternalError: lost rank 2 (localhost)" >&2; exit 1',
        code=3,
    )
    has(program.err, "horovodrun: rank 2 on localhost exited with code 3\n")
    last = program.err.split("the last lines of rank 2:\n")[1]
    has(last, "    line 3\n")
    has(last, "    the cause\n")


def test_a_consequence_that_is_faster_than_its_cause_is_not_blamed(folder):
    for turn in range(3):  # a verdict waits two seconds for the cause, which a busy machine may exceed
        up = f"{folder}/up.{turn}"
        program = start_ranks(
            folder,
            3,
            f"if [ $HOROVOD_RANK = 1 ]; then : > {up}; sleep 0.6; exit 7; fi; "
            f"while [ ! -e {up} ]; do sleep 0.01; done; "
            'echo "lost rank 1 (localhost)" >&2; exit 1',
        )
        code = program.end()
        if code == 7:
            break
    same(code, 7, program.err)
    has(program.err, "horovodrun: rank 1 on localhost exited with code 7\n")


def test_a_failure_stops_the_other_ranks(folder):
    program = start_ranks(
        folder,
        3,
        'trap "echo saved; exit 0" TERM; '
        f": > {folder}/up.$HOROVOD_RANK; while [ ! -e {folder}/go ]; do sleep 0.01; done; "
        "[ $HOROVOD_RANK = 1 ] && exit 3; while :; do sleep 0.01; done",
    )
    wait_for_ranks(folder, 3)
    begin = time.monotonic()
    open(f"{folder}/go", "w", encoding="ascii").close()
    same(program.end(), 3, program.err)
    assert time.monotonic() - begin < 5, "nothing waits for the grace"
    same(program.out.count("saved"), 2)


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace(folder):
    begin = time.monotonic()
    code = f"""import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
r = os.environ['HOROVOD_RANK']
open('{folder}/up.' + r, 'w')
while r == '1' and not os.path.exists('{folder}/up.0'): time.sleep(0.01)
if r == '1': os._exit(3)
time.sleep(60)
"""
    run_ranks(folder, 2, code, shell=sys.executable, code=3)
    took = time.monotonic() - begin
    assert 5 <= took < 30, took


TREE = (
    'echo $$ > {0}/pid.$HOROVOD_RANK; (trap "" TERM INT; echo $BASHPID > {0}/child.$HOROVOD_RANK; '
    "while :; do sleep 0.05; done) & wait"
)


def tree_pids(folder):
    names = [f"{folder}/{kind}.{i}" for kind in ("pid", "child") for i in (0, 1)]
    wait_until("ranks and their children are up", lambda: all(read(n).strip() for n in names))
    return [int(read(n)) for n in names]


def test_a_killed_launcher_leaves_no_process_and_no_file(folder):
    program = start_ranks(folder, 2, TREE.format(folder), shell="bash")
    pids = tree_pids(folder)
    same(len(scratch(folder)), 1, "scratch folder")
    program.signal(signal.SIGKILL)
    same(program.end(), 137)
    wait_until("all are gone", lambda: not any(map(is_alive, pids)))
    wait_until("scratch is gone", lambda: not scratch(folder))


def test_ranks_die_with_the_launcher_even_without_its_guard(folder):
    program = start(folder, "-np", "2", *looping(folder))
    pids = up(folder, 2)
    # it has its name as soon as it has a processor
    guards = wait_until("the guard", lambda: children(program.pid, "hvd-guard"))
    os.kill(guards[0], signal.SIGKILL)
    program.signal(signal.SIGKILL)
    same(program.end(), 137)
    wait_until("ranks are gone", lambda: not any(map(is_alive, pids)))


def test_the_next_start_removes_what_a_killed_launcher_and_guard_left(folder):
    runs = [start(folder, "-np", "1", "sh", "-c", LOOP, name=f"run{i}") for i in range(2)]
    for run_ in runs:
        wait_until("its rank", lambda run_=run_: children(run_.pid, "sh"))
    both = set(scratch(folder))
    in_memory = [n for n in both if os.path.exists(f"/dev/shm/{n}")]
    guards = wait_until("the guard", lambda: children(runs[0].pid, "hvd-guard"))
    os.kill(guards[0], signal.SIGKILL)
    wait_until("it has gone", lambda: not is_alive(guards[0]))
    runs[0].signal(signal.SIGKILL)
    same(runs[0].end(), 137)
    same(set(scratch(folder)), both, "both folders are there")
    run(folder, "-np", "1", "true", name="next")
    (kept,) = scratch(folder)
    same(sorted(os.listdir(f"{folder}/{kept}")), [".lock", "hostfile", "status", "token"])
    same([n for n in both if os.path.exists(f"/dev/shm/{n}")], [kept] if in_memory else [])
    runs[1].signal(signal.SIGTERM)
    same(runs[1].end(), 128 + signal.SIGTERM)
    same(scratch(folder), [], "scratch folder")


def test_children_of_ranks_end_with_the_job(folder):
    program = start_ranks(folder, 2, TREE.format(folder), shell="bash")
    pids = tree_pids(folder)
    os.kill(pids[0], signal.SIGKILL)
    same(program.end(), 137)
    wait_until("all are gone", lambda: not any(map(is_alive, pids)))
    same(scratch(folder), [], "scratch folder")


def test_ranks_inherit_no_descriptor(folder):
    ours, theirs = os.pipe()
    program = run(
        folder, "-np", "2", sys.executable, "-c", "import os; print(len(os.listdir('/proc/self/fd')))"
    )
    same(
        set(line.split(":")[1] for line in program.out.splitlines()), {"4"}
    )  # 0, 1, 2 and the listing itself
    os.close(ours)
    os.close(theirs)


def test_rank_0_reads_our_standard_input(folder):
    with open(f"{folder}/input", "w+", encoding="ascii") as f:
        f.write("some text\n")
        f.seek(0)
        program = run(folder, "-np", "2", "cat", stdin=f)
    same(program.out, "[0]<stdout>:some text\n")


def test_a_missing_command_is_named(folder):
    bad = os.path.join(folder, "bad")
    write(bad, "#!/no/such/interpreter\n")
    for words, code, part in (
        (["no-such-program"], 127, "command no-such-program was not found in PATH ("),
        (["./no-such-file"], 127, "command ./no-such-file does not exist"),
        ([folder], 126, f"command {folder} is a folder"),
        ([bad], 126, f"command {bad} is not executable (chmod +x)"),
        ([""], 127, "the command is empty"),
    ):
        has(run(folder, "-np", "2", *words, code=code).err, "horovodrun: " + part)
    os.chmod(bad, 0o755)
    has(run(folder, "-np", "2", bad, code=127).err, "its interpreter (the first line after #!")


def test_a_missing_python_error_names_another_version(folder):
    os.symlink(sys.executable, f"{folder}/python3")
    program = run(
        folder, "-np", "1", "python", "x.py", code=127, env=environment(TMPDIR=folder, PATH=folder)
    )
    has(program.err, "command python was not found in PATH (")
    has(program.err, f"{folder}); there is {folder}/python3")


def test_scripts_without_interpreter_line_run(folder):
    script = os.path.join(folder, "script")
    executable(script, "echo $1 $HOROVOD_RANK\n")
    same(run(folder, "-np", "1", script, "word").out, "[0]<stdout>:word 0\n")


def test_wrong_command_lines_are_refused_with_a_message(folder):
    hostfile = os.path.join(folder, "hosts")
    write(hostfile, "localhost slots=2\n")
    for words, part in (
        ([], "-np is missing"),
        (["-np", "2"], "the command is missing"),
        (["-np", "2", "-H", "localhost:2", "-hostfile", hostfile, "true"], "exclude each other"),
        (["-np", "3", "-H", "localhost:2", "true"], "-np 3 exceeds the 2 slots"),
        (["-np", "2", "-hostfile", folder + "/none", "true"], "/none"),
        (["-np", "2", "-H", "localhost:two", "true"], "-H"),
    ):
        program = run(folder, *words, code=2)
        has(program.err, part)
        same(program.err.count("\n"), 1, "one line")


def test_hosts_may_give_the_number(folder):
    same(run(folder, "-H", "localhost:3", "echo", "x").out.count("x"), 3)
    same(run(folder, "-np", "2", "-H", f"{socket.gethostname()}:4", "echo", "x").out.count("x"), 2)


def test_version_and_other_name(folder):
    has(run(folder, "--version").out, "0.28.1+ringmaster.")
    os.symlink(HOROVODRUN, f"{folder}/perseusrun")
    program = Program(
        [f"{folder}/perseusrun", "-np", "1", "sh", "-c", "exit 5"], environment(TMPDIR=folder), folder, "p"
    )
    same(program.end(), 5)
    has(program.err, "perseusrun: rank 0 on localhost exited with code 5")


def test_every_option_is_in_help_and_manual(folder):
    manual = read(os.path.join(ROOT, "runtime/launch/horovodrun.1")).replace("\\-", "-")
    lines = re.findall(r"^  (-\S.*)$", run(folder, "--help").out, re.M)
    names = {n.rstrip(",") for line in lines for n in re.findall(r"(?:^|, )(-[a-zA-Z-]+)", line)}
    assert len(names) > 60, names
    documented = set(re.findall(r"Fl (\S+)", manual)) - {"-"}  # the "--" before the command
    same(names - {"-" + d for d in documented}, set(), "in the help only")
    same({"-" + d for d in documented} - names, set(), "in the manual only")


def test_scratch_is_private(folder):
    program = start(folder, "-np", "1", *looping(folder, loop=UNTIL_GO.format(folder)))
    up(folder, 1)
    (name,) = scratch(folder)
    same(stat.S_IMODE(os.stat(f"{folder}/{name}").st_mode), 0o700)
    open(f"{folder}/go", "w", encoding="ascii").close()
    same(program.end(), 0)
    same(scratch(folder), [])


if __name__ == "__main__":
    main(globals())
