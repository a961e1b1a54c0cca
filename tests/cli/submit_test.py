#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-submit without Slurm, in TAP. usage: submit_test.py [TEST ...]

submit/*.txt are transcripts, as in cli_test.py: "$ hvd-submit WORDS", run in submit/. The other tests run scripts
with programs in place of srun, sbatch, squeue and scontrol, which record how they were called; tests/slurm has the
real ones. BIN is the folder of the program.
"""

from __future__ import annotations

import difflib
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "tests/operator"))
from api import Suite, expect  # noqa: E402

PROGRAM = os.environ["BIN"] + "/hvd-submit"
RECORD = """#!/usr/bin/python3
import json, os, sys
name = os.path.basename(sys.argv[0])
stdin = sys.stdin.read() if name == "sbatch" else ""
with open(os.environ["HVD_CALLS"], "a") as f:
    f.write(json.dumps([name, sys.argv[1:], dict(os.environ), stdin]) + "\\n")
if name == "squeue":
    print(os.environ.get("HVD_STATE", "RUNNING"))
if name == "srun":
    print("out", flush=True)
    sys.stderr.write(os.environ.get("HVD_STDERR", ""))
sys.exit(int(os.environ.get("HVD_CODE", "0")) if name in ("srun", "sbatch") else 0)
"""
suite = Suite()


def run(
    words: list[str], stdin: str = "", cwd: Path = HERE / "submit", **env: str
) -> subprocess.CompletedProcess:
    return subprocess.run(
        words,
        input=stdin,
        env={"PATH": "/usr/bin:/bin"} | env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class Calls:
    """Programs that record their calls."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.log = self.path / "calls"
        (self.path / "bin").mkdir()
        for name in ("srun", "sbatch", "squeue", "scontrol"):
            (self.path / "bin" / name).write_text(RECORD)
            (self.path / "bin" / name).chmod(0o755)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def run(
        self, words: list[str], stdin: str = "", **env: str
    ) -> tuple[subprocess.CompletedProcess, list]:
        self.log.write_text("")
        more = {"PATH": f"{self.path}/bin:/usr/bin:/bin", "HVD_CALLS": str(self.log), "SLURM_JOB_ID": "7"}
        done = run(words, stdin, **more | env)
        return done, [json.loads(line) for line in self.log.read_text().splitlines()]


def transcript(line: str) -> tuple[str, str]:
    done = run([PROGRAM, *shlex.split(line)[2:]])
    out = done.stdout + "".join(f"! {x}\n" for x in done.stderr.splitlines())
    return out + (f"[{done.returncode}]\n" if done.returncode else ""), done.stdout


def check(file: Path) -> None:
    want, got, line = file.read_text(), "", None
    for line in want.splitlines():
        if line.startswith("# ") and not got:
            got = line + "\n"
        if line.startswith("$ hvd-submit"):
            out, script = transcript(line)
            got += f"{line}\n{out}\n"
            for one in script.split("#!/bin/sh\n")[1:]:
                lint(line, "#!/bin/sh\n" + one)
    if os.environ.get("GOLDEN_UPDATE"):
        file.write_text(got)
        return
    diff = difflib.unified_diff(want.splitlines(), got.splitlines(), "golden", "now", lineterm="")
    expect(want == got, "\n".join(diff))


def lint(line: str, script: str) -> None:
    """SC2016: what looks like an expansion between single quotes, which is the purpose."""
    for shell in ("sh", "bash"):
        done = run(["shellcheck", "-s", shell, "-e", "SC2016", "-"], script)
        expect(done.returncode == 0, line, done.stdout)
        done = run([shell, "-n"], script)
        expect(done.returncode == 0, line, done.stderr)


for transcripts in sorted((HERE / "submit").glob("*.txt")):
    suite.add(f"golden_{transcripts.stem}", check, transcripts)


@suite.test
def every_example_is_in_the_golden_file() -> None:
    text = (HERE / "submit/examples.txt").read_text()
    for file in (ROOT / "manifests/examples").glob("*.yaml"):
        expect(f"/{file.name}\n" in text, f"{file.name} is missing")


def job(command: list[str], env: list[dict], **run_policy) -> str:
    container = {"name": "t", "image": "i", "command": command, "env": env}
    return json.dumps(
        {
            "apiVersion": "ringmaster.dev/v1beta1",
            "kind": "HorovodJob",
            "metadata": {"name": "j"},
            "spec": {
                "runPolicy": run_policy,
                "replicaSpecs": {"Worker": {"template": {"spec": {"containers": [container]}}}},
            },
        }
    )


HOSTILE = [
    "'", '"', "$(touch hacked)", "`touch hacked`", "\n#SBATCH --uid=0\n", "\n", "\t", "\\", "$HOME", "${IFS}", "*", "~",
    "; exit 0", "&& true", "| cat", ">f", "!", "#", " ", "-n", "--", "é", "=", "$", "$$", ")", "(", "$(A)", "$$(A)", "''",
    "EOF", "\\'", "a", "%s", "$@", "\nexit 0\n", "{a,b}", "[x]",
]  # fmt: skip


def expand(text: str, known: dict[str, str]) -> str:
    """As the kubelet does."""
    out, i = "", 0
    while i < len(text):
        if text.startswith("$$", i):
            out, i = out + "$", i + 2
        elif text.startswith("$(", i) and ")" in text[i:]:
            name = text[i + 2 : text.index(")", i)]
            out, i = out + known.get(name, f"$({name})"), text.index(")", i) + 1
        else:
            out, i = out + text[i], i + 1
    return out


@suite.test
def values_reach_the_program_unchanged() -> None:
    choose = random.Random(27)
    names = ["A", "B", "PATH", "IFS", "srun", "code", "limit", "ENV", "LD_X", "_"]
    with Calls() as calls:
        for n in range(20):
            texts = ["".join(choose.choices(HOSTILE, k=choose.randint(0, 6))) for _ in range(12)]
            env = dict(zip(names, texts))
            known = {"OUT": "from 'outside' $(A)"}
            for name, value in env.items():
                known[name] = expand(value, known)
            sources = [{"name": "OUT", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
            words = ["prog", *texts, "$(A)$(B)", "$(OUT)", ": "]
            text = job(words, sources + [{"name": k, "value": v} for k, v in env.items()], backoffLimit=1)
            done = run([PROGRAM, "--dry-run", "-"], text)
            expect(done.returncode == 0, f"case {n}: {text}", done.stderr)
            for shell in ("dash", "bash"):
                end, log = calls.run([shell, "-s"], done.stdout, dir="mine", OUT=known["OUT"])
                expect(end.returncode == 0 and len(log) == 1, f"case {n}, {shell}", done.stdout, end.stderr)
                expect(log[0][2]["dir"] == "mine", "a variable of the user's environment changed")
                got = log[0][1]
                want = [expand(w, known) for w in words]
                expect(got[got.index("--") + 1 :] == want, f"case {n}, {shell}", got, want, done.stdout)
                seen = {k: v for k, v in log[0][2].items() if k in known and k != "_"}
                expect(
                    seen == {k: v for k, v in known.items() if k != "_"}, f"case {n}, {shell}", seen, known
                )
            expect(not (HERE / "submit/hacked").exists(), "a value was run as code")


@suite.test
def the_script_decides_about_a_restart() -> None:
    text = run([PROGRAM, "--dry-run", "mapping.yaml"]).stdout
    rows = [  # srun's code, starts before, state, requeued
        (0, 0, "RUNNING", False), (1, 0, "RUNNING", True), (1, 1, "RUNNING", True), (1, 2, "RUNNING", False),
        (3, 1, "RUNNING", True), (9, 0, "RUNNING", False), (75, 50, "RUNNING", True), (137, 0, "RUNNING", False),
        (132, 0, "RUNNING", False), (135, 50, "RUNNING", True), (143, 0, "RUNNING", False), (1, 0, "COMPLETING", False), (1, 0, "", False),
    ]  # fmt: skip
    with Calls() as calls:
        for code, starts, state, is_again in rows:
            env = {"HVD_CODE": str(code), "HVD_STATE": state}
            if starts:
                env["SLURM_RESTART_COUNT"] = str(starts)
            done, log = calls.run(["sh", "-s"], text, **env)
            seen = [c[:2] for c in log if c[0] == "scontrol"]
            expect(done.returncode == code, f"{code}: exit code {done.returncode}", done.stderr)
            expect(
                seen == ([["scontrol", ["requeue", "7"]]] if is_again else []),
                f"{code}, {starts}, {state}",
                seen,
            )


@suite.test
def the_first_failure_decides() -> None:
    text = run([PROGRAM, "--dry-run", "mapping.yaml"]).stdout
    task = "srun: error: node1: task"
    rows = [  # standard error, exit code of the script
        (f"a\n{task} 3: Exited with exit code 75\n{task}s 0-2,4: Killed\nb", 75),
        (f"{task}s 0-2: Killed\n{task} 3: Exited with exit code 75\n", 137),
        (f"{task} 3: Segmentation fault (core dumped)\n", 139),
        (f"{task} 3: Out Of Memory\n", 137),
        ("no line of srun", 1),
    ]
    with Calls() as calls:
        for shell in ("dash", "bash"):
            for stderr, code in rows:
                done, _ = calls.run(
                    [shell, "-s"],
                    text,
                    HVD_CODE="1",
                    HVD_STDERR=stderr,
                    HVD_STATE="X",
                    TMPDIR=str(calls.path),
                )
                expect(done.returncode == code, f"{stderr}: {done.returncode}", done.stderr)
                expect(
                    done.stderr == stderr and done.stdout == "out\n",
                    "the streams",
                    done.stdout,
                    done.stderr,
                )
            done, _ = calls.run([shell, "-s"], text, HVD_STDERR=rows[0][0])
            expect(done.returncode == 0, "success stays success", done.stderr)
        expect(not list(calls.path.glob("tmp.*")), "a temporary folder is left")


@suite.test
def each_job_is_submitted_with_the_options() -> None:
    with Calls() as calls:
        done, log = calls.run([PROGRAM, "roles.yaml", "--", "--partition=a b", "--wait"])
        dry = run([PROGRAM, "--dry-run", "roles.yaml"]).stdout
        expect(done.returncode == 0, "submission", done.stderr)
        expect(
            [c[:2] for c in log] == [["sbatch", ["--partition=a b", "--wait"]]] * 2, "calls of sbatch", log
        )
        expect("".join(c[3] for c in log) == dry, "the scripts are not those of --dry-run", log[0][3], dry)
        done, log = calls.run([PROGRAM, "roles.yaml"], HVD_CODE="9")
        expect(done.returncode == 9 and len(log) == 1, "sbatch fails", done, log)
        done, log = calls.run([PROGRAM, "roles.yaml", "bad.yaml"])
        expect(
            done.returncode == 1 and not log, "a mistake in the last file submits nothing", done.stderr, log
        )
        expect("hvd-submit: nothing is submitted" in done.stderr, "it says so", done.stderr)


@suite.test
def without_sbatch_it_says_so() -> None:
    done = run([PROGRAM, "roles.yaml"], PATH="/nowhere")
    expect(done.returncode == 127 and "sbatch is not in PATH" in done.stderr, "no sbatch", done.stderr)


@suite.test
def standard_input_and_json_are_read() -> None:
    done = run([PROGRAM, "--dry-run", "-"], job(["true"], []))
    expect(done.returncode == 0 and "#SBATCH --job-name=j\n" in done.stdout, "JSON", done.stderr)
    expect("stdin: spec.replicaSpecs" in done.stderr or "stdin:1: " in done.stderr, "its name", done.stderr)
    done = run([PROGRAM, "-"], "a: [")
    expect(done.returncode == 1 and done.stderr.startswith("stdin:"), "bad YAML", done.stderr)


if __name__ == "__main__":
    sys.exit(suite.main(sys.argv[1:]))
