#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""horovodrun around its ranks: config file, check-build, perseusrun, completion for bash. TAP.

usage: config_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

import os
import re
import subprocess
import sys

from launched import BIN, HOROVODRUN, ROOT, environment, executable, run, variables
from tap import Program, has, main, read, same, write

LAUNCH = os.path.join(ROOT, "runtime/launch")


def config(folder, text):
    path = os.path.join(folder, "config.yaml")
    write(path, text)
    return path


def test_a_config_file_counts_where_it_stands(folder):
    path = config(
        folder,
        """# tuned in May
params:
    fusion_threshold_mb: 32
    cycle_time_ms: 5.5
    cache_capacity: ~
    hierarchical_allreduce: yes
autotune: {enabled: false}
logging:
    level: "info"
    with_timestamp: False
stall_check: {enabled: off}
timeline:
controller: Gloo
""",
    )
    before, after = ("--fusion-threshold-mb", "8", "--cache-capacity", "9"), ("--cycle-time-ms", "2")
    got = variables(folder, *before, "--config-file", path, *after)
    for name, value in {
        "HOROVOD_FUSION_THRESHOLD": str(32 << 20),  # it overrides options before it
        "HOROVOD_CYCLE_TIME": "2",  # and is overridden by options after it
        "HOROVOD_CACHE_CAPACITY": "9",  # null is as if it were not there
        "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
        "HOROVOD_AUTOTUNE": "0",
        "HOROVOD_LOG_LEVEL": "INFO",
        "HOROVOD_LOG_HIDE_TIME": "1",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
    }.items():
        same(got.get(name), value, name)
    same(variables(folder, "--config-file", config(folder, "")).get("HOROVOD_CYCLE_TIME"), None)


def test_the_manuals_config_file_is_taken_and_has_every_key(folder):
    manual = read(f"{LAUNCH}/horovodrun.1")
    example = re.search(r"^\.Bd -literal -offset indent\n(controller:.*?)^\.Ed", manual, re.M | re.S)[1]
    path = config(folder, example)
    got = variables(folder, "--config-file", path)
    same(got["HOROVOD_FUSION_THRESHOLD"], str(64 << 20))
    keys, section = {"controller"}, ""
    for line in example.splitlines():
        key, value = re.fullmatch(r" *(\w+):(.*)", line).groups()
        if not line.startswith(" "):
            section = key
        elif value:
            keys.add(f"{section}.{key}")
    table = read(f"{LAUNCH}/core/option_table.h")
    same(keys, set(re.findall(r'"(\w+\.\w+)"', table)) | {"controller"})


def test_a_wrong_config_file_is_reported_with_line_and_key(folder):
    for text, part in (
        ("params:\n  fusion_treshold_mb: 1\n", "line 2: unknown key params.fusion_treshold_mb; the nearest is params.fusion_threshold_mb"),
        ("paramz:\n  cycle_time_ms: 1\n", "line 1: unknown key paramz; the nearest is params"),
        ("fusion_threshold_mb: 1\n", "line 1: unknown key fusion_threshold_mb; the nearest is params.fusion_threshold_mb"),
        ("params:\n\n  cycle_time_ms: -1\n", "line 3: params.cycle_time_ms=-1 must be >= 0"),
        ("params: 3\n", "line 1: params is a section: its keys must be below it, indented"),
        ("params:\n  - cycle_time_ms: 1\n", "params is a list"),
        ("- params\n", "the file is a list"),
        ("controller: {a: b}\n", "line 1: controller has keys below it where a value is expected"),
        ("params:\n  cycle_time_ms: {a: 1}\n", "params.cycle_time_ms has keys below it where a value is expected"),
        ("? {a: b}\n: c\n", "has keys below it where a value is expected"),
        ("controller: ray\n", "controller=ray is neither gloo nor mpi"),
        ("params: *x\n", "aliases (*x) are not supported"),
        ("just words\n", 'keys are expected, such as "params:"'),
        ("params:\n  cycle_time_ms: 1\n---\nparams:\n", "more than one document"),
        ("controller: 'gloo\n", "line 2: found unexpected end of stream"),
        ("params:\n\tcycle_time_ms: 1\n", "line 2: "),
        ("autotune:\n  enabled: maybe\n", "autotune.enabled=maybe must be true or false"),
        ("logging:\n  level: loud\n", "logging.level=loud must be one of: TRACE|"),
        ("timeline:\n  filename: ''\n", "timeline.filename is empty"),
    ):  # fmt: skip
        path = config(folder, text)
        err = run(folder, "-np", "1", "--config-file", path, "true", code=2).err
        has(err, f"horovodrun: {path}: ")
        has(err, part)
        same(err.count("\n"), 1, "one line")
    has(run(folder, "-np", "1", "--config-file", f"{folder}/none", "true", code=2).err, f"{folder}/none")


def test_check_build_is_horovods_table_and_true(folder):
    os.mkdir(f"{folder}/packages")
    for name in "torch", "tensorflow":  # being there is enough, being imported would fail
        os.mkdir(f"{folder}/packages/{name}")
        write(f"{folder}/packages/{name}/__init__.py", "raise RuntimeError('imported')\n")
    os.mkdir(f"{folder}/bin")
    executable(f"{folder}/bin/python", f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    env = environment(TMPDIR=folder, PATH=f"{folder}/bin:/usr/bin:/bin", HVD_GPU="off")
    env.pop("PYTHONPATH", None)

    def table(boxes):
        version = run(folder, "--version").out.strip()
        tensorflow, torch = boxes
        blanks = "    "  # Horovod's last line ends so
        return f"""Horovod v{version}:

Available Frameworks:
    [{tensorflow}] TensorFlow
    [{torch}] PyTorch
    [ ] MXNet

Available Controllers:
    [ ] MPI
    [ ] Gloo

Available Tensor Operations:
    [ ] NCCL
    [ ] DDL
    [ ] CCL
    [ ] MPI
    [ ] Gloo{blanks}

Ringmaster v"""

    has_runtime = os.path.isdir(os.path.join(os.path.dirname(BIN), "python/_hvd"))
    both = ("X", "X") if has_runtime else (" ", " ")
    for words, path, wanted in (
        (["-cb"], None, (" ", " ")),
        (["--check-build"], f"{folder}/packages", both),
        (["--check-build", "-np", "2", "--gloo", "true"], f"{folder}/packages", both),
    ):
        out = run(folder, *words, env=dict(env, PYTHONPATH=path) if path else env).out
        assert out.startswith(table(wanted)), out
        is_printed = "tensorflow's stream ordering: through host memory" in out
        same(is_printed, path is not None, "the way is printed")
    out = run(folder, "-cb", "--verbose", env=env).out
    assert out.startswith("\n" + table((" ", " "))), out
    has(out, f"    python: {sys.executable}")
    has(out, "    [ ] GPU tensors: HVD_GPU=off\n")
    assert "HOROVOD_" not in out, out
    built = dict(env, HOROVOD_WITH_TENSORFLOW="1", HOROVOD_WITHOUT_MXNET="1", HOROVOD_GPU_OPERATIONS="NCCL")
    out = run(folder, "-cb", env=built).out
    for entry in "HOROVOD_WITH_TENSORFLOW=1", "HOROVOD_WITHOUT_MXNET=1", "HOROVOD_GPU_OPERATIONS=NCCL":
        has(out, f"    {entry}: without effect, the wheel is complete and nothing is compiled\n")
    executable(f"{folder}/bin/python", "#!/bin/sh\nexit 9\n")
    has(run(folder, "-cb", env=env).out, f"    python: {folder}/bin/python exited with code 9\n")
    executable(f"{folder}/bin/python", "#!/bin/sh\nexec sleep 60\n")
    has(run(folder, "-cb", "--start-timeout", "0.3", env=env).out, "did not exit within 0.3 s")
    os.unlink(f"{folder}/bin/python")
    bare = run(folder, "-cb", env=dict(env, PATH=f"{folder}/bin")).out
    has(bare, "    python: neither python nor python3 is in PATH\n")


def test_perseusrun_takes_what_its_documents_show(folder):
    os.symlink(HOROVODRUN, f"{folder}/perseusrun")
    for words in (
        ["-np", "2", "-H", "localhost:2", "--", "echo", "x"],
        ["--mpi", "-np", "2", "-H", "localhost:2", "echo", "x"],
        ["--gloo", "-np", "2", "echo", "x"],
        ["\u2013-mpi", "\u2013np", "2", "\u2013H", "localhost:2", "\u2013-", "echo", "x"],
        ["\u2014mpi", "\u2014np", "2", "\u2014", "echo", "x"],
        ["\u2212np=2", "echo", "x"],
    ):
        program = Program([f"{folder}/perseusrun", *words], environment(TMPDIR=folder), folder, "p")
        same(program.end(), 0, program.err)
        same(sorted(program.out.splitlines()), ["[0]<stdout>:x", "[1]<stdout>:x"])
        dashes = [w for w in words if not w.isascii()]
        same(program.err.count("perseusrun: warning: "), len(dashes), program.err)
        for word in dashes:
            has(program.err, f"{word} has a typographic dash and is read as -")
    for words, wanted in (
        (["-np", "{NP}", "-H", "{HOSTS}"], "-np={NP} is a placeholder; replace the braces with N"),
        (["\u2013np", "2", "\u2013H", "{HOSTS}"], "-H={HOSTS} is a placeholder; replace the braces with "),
    ):
        program = Program([f"{folder}/perseusrun", *words, "true"], environment(TMPDIR=folder), folder, "p")
        same(program.end(), 2, program.err)
        same(program.err.count("\n"), 1, program.err)
        has(program.err, f"perseusrun: {wanted}")
    program = run(folder, "-np", "1", "echo", "\u2013x")  # what is the command's is left alone
    same((program.out, program.err), ("[0]<stdout>:\u2013x\n", ""))


def complete(program, *words, registered=("horovodrun", "perseusrun")):
    """What bash would offer for the last word."""
    function = "_" + program.replace("-", "_")
    script = (
        f'source {LAUNCH}/{program}.bash; PATH={BIN}:$PATH; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        f'{function}; printf "%s\\n" "${{COMPREPLY[@]}}"; complete -p {" ".join(registered)}'
    )
    command = ["bash", "--norc", "-c", script, "bash", program, *words]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    same(out.stderr, "")
    lines = out.stdout.splitlines()
    same(lines[-len(registered) :], [f"complete -F {function} {p}" for p in registered])
    return sorted(filter(None, lines[: -len(registered)]))


def test_bash_completes(folder):
    names = set(re.findall(r"(?:^  |, )(-[a-zA-Z-]+)", run(folder, "--help").out, re.M))
    same(set(complete("horovodrun", "-")), names, "every option, and nothing else")
    same(complete("horovodrun", "-np", "2", "--time"), ["--timeline-filename", "--timeline-mark-cycles"])
    same(complete("horovodrun", "--log-level", "D"), ["DEBUG"])
    same(complete("horovodrun", "--log-level", "=", "W"), ["WARNING"])
    same(complete("horovodrun", "--binding", "="), ["cores", "none", "numa"])
    same(complete("horovodrun", "--network-interfaces", "l"), ["lo"])
    with open(f"{folder}/config.yaml", "w", encoding="ascii"):
        os.mkdir(f"{folder}/configs")
    both = [f"{folder}/config.yaml", f"{folder}/configs"]
    same(complete("horovodrun", "--config-file", f"{folder}/conf"), both)
    same(complete("horovodrun", "--output-filename", f"{folder}/conf"), [f"{folder}/configs"])
    same(complete("horovodrun", "--blacklist-cooldown-range", "1", "2", "--verb"), ["--verbose"])
    same(complete("horovodrun", "-np", ""), [])
    assert "sleep" in complete("horovodrun", "-np", "2", "slee")
    assert "sleep" in complete("horovodrun", "-np", "2", "--", "slee")
    same(complete("horovodrun", "-np", "2", "cat", "--log-level", f"{folder}/config.y"), both[:1])


def test_bash_completes_the_agent(folder):
    def agent(*words):
        return complete("hvd-agent", *words, registered=["hvd-agent"])

    commands = ["await", "examine", "hosts", "install", "report", "rsh", "run", "serve", "token"]
    same(agent(""), ["--help", "--version", *commands])
    same(agent("report", "--"), ["--examine", "--json", "--ranks", "--stacks"])
    same(agent("serve", "--"), ["--bind", "--port", "--token-file"])
    with open(f"{folder}/token", "w", encoding="ascii"):
        os.mkdir(f"{folder}/tokens")
    same(agent("serve", "--token-file", f"{folder}/tok"), [f"{folder}/token", f"{folder}/tokens"])
    same(agent("token", f"{folder}/tok"), [f"{folder}/token", f"{folder}/tokens"])
    same(agent("serve", "--port", ""), [])
    same(agent("install", f"{folder}/tok"), [f"{folder}/tokens"])
    same(agent("await", "--host"), ["--hostfile"])
    same(agent("await", "--hostfile", f"{folder}/tok"), [f"{folder}/token", f"{folder}/tokens"])
    assert "sleep" in agent("await", "--hostfile", "f", "--", "slee")
    assert "sleep" in agent("run", "--", "slee")


if __name__ == "__main__":
    main(globals())
