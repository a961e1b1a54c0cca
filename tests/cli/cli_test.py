#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kubectl-hvd against recorded answers of kubectl and against files, in TAP. usage: cli_test.py [TEST ...]

golden/*.txt are transcripts: a line "$ kubectl hvd WORDS", then its output, "! " before lines of standard error,
and "[N]" if it exits with N. GOLDEN_UPDATE=1 writes what comes out; read the diff. BIN is the folder of the
program.
"""

from __future__ import annotations

import difflib
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "tests/operator"))
from api import Suite, expect  # noqa: E402

PROGRAM = os.environ.get("HVD_PROGRAM", os.environ["BIN"] + "/kubectl-hvd")
suite = Suite()


def environment(**more: str) -> dict[str, str]:
    drop = ("NO_COLOR", "GOLDEN_UPDATE", "HVD_RECORD", "KUBECONFIG")
    env = {k: v for k, v in os.environ.items() if k not in drop}
    return env | {"PATH": f"{HERE}:/usr/bin:/bin", "TERM": "xterm"} | more


def run(words: list[str], stdin: str = "", **more: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [PROGRAM, *words],
        input=stdin,
        env=environment(**more),
        cwd=HERE / "files",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def transcript(line: str) -> str:
    """What the command of "$ kubectl hvd ..." prints, and the requests that change something."""
    with tempfile.NamedTemporaryFile("r") as calls:
        done = run(shlex.split(line)[3:], HVD_CALLS=calls.name)
        out = done.stdout + "".join(f"! {x}\n" for x in done.stderr.splitlines())
        out += "".join(f"> {x}" for x in calls.read().splitlines(keepends=True))
    out = re.sub(r"\b20\d\d-\d\d-\d\dT[\d:.]+Z", "TIME", out)
    return out + (f"[{done.returncode}]\n" if done.returncode else "")


def check(path: Path) -> None:
    want = path.read_text()
    got = []
    for line in want.splitlines(keepends=True):
        if line.startswith(("# ", "#\n")):
            got.append(line)
        elif line.startswith("$ "):
            got.append(line + transcript(line))
    text = "\n".join(x.rstrip("\n") + ("\n" if x.startswith("$ ") else "") for x in got).rstrip("\n") + "\n"
    if os.environ.get("GOLDEN_UPDATE"):
        path.write_text(text)
    diff = "".join(
        difflib.unified_diff(want.splitlines(True), text.splitlines(True), str(path), "came out")
    )
    expect(not diff or os.environ.get("GOLDEN_UPDATE"), f"the transcript\n{diff}")


for file in sorted((HERE / "golden").glob("*.txt")):
    suite.add(f"golden_{file.stem}", check, file)


def on_a_terminal(*words: str, **more: str) -> str:
    """The output of a run whose standard output is a terminal."""
    main, side = pty.openpty()
    with subprocess.Popen([PROGRAM, *words], stdin=side, stdout=side, env=environment(**more)) as process:
        os.close(side)
        out = b""
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            out += part
        process.wait(60)
    os.close(main)
    return out.decode()


@suite.test
def colour_only_on_a_terminal() -> None:
    words = ("list", "-n", "team")
    expect("\x1b[31mFailed\x1b[0m" in on_a_terminal(*words), "red on a terminal")
    expect("\x1b" not in on_a_terminal(*words, NO_COLOR="1"), "NO_COLOR")
    expect("\x1b" not in on_a_terminal(*words, TERM="dumb"), "TERM=dumb")
    expect("\x1b" not in run(list(words)).stdout, "not in a pipe")


@suite.test
def no_escape_sequence_of_a_job_reaches_the_terminal() -> None:
    for words in (
        ("status", "-n", "team", "broken"),
        ("explain", "-n", "team", "broken"),
        ("events", "-n", "team", "broken"),
    ):
        for out in (on_a_terminal(*words, NO_COLOR="1"), run(list(words)).stdout):
            expect(
                "\x1b" not in out and "\u202e" not in out and "\\x1b[31mred" in out, "escaped", words, out
            )
    out = on_a_terminal("explain", "-n", "team", "broken", "-o", "yaml", NO_COLOR="1")
    expect("\x1b" not in out and "\u202e" not in out and "red" in out, "YAML on a terminal", out)
    out = on_a_terminal("stacks", "-n", "team", "train", "--examine", NO_COLOR="1")
    expect("\x1b" not in out and "\x07" not in out and "data.py" in out, "stacks", out)


@suite.test
def a_missing_kubectl_is_one_sentence() -> None:
    done = run(["list"], PATH="/nowhere")
    expect(
        done.returncode == 1 and done.stderr.count("\n") == 1 and "PATH" in done.stderr,
        "the sentence",
        done,
    )


@suite.test
def files_can_come_from_standard_input() -> None:
    text = (ROOT / "manifests/examples/suspend.yaml").read_text()
    done = run(["validate", "-f", "-"], stdin=text)
    expect(done.stdout == "stdin: horovodjob/suspended is valid\n", "valid", done)
    done = run(
        ["validate", "-f", "-"],
        stdin=text.replace("backoffLimit", "x").replace("suspend: true", "suspend: 7"),
    )
    expect(
        done.returncode == 1 and re.search(r"^stdin:\d+: spec.runPolicy.suspend", done.stderr),
        "a problem",
        done,
    )


@suite.test
def every_example_is_valid_and_renders() -> None:
    for file in sorted((ROOT / "manifests/examples").glob("*.yaml")):
        done = run(["validate", str(file)])
        expect(done.returncode == 0 and done.stdout, "valid", file, done)
        done = run(["render", str(file)])
        expect(done.returncode == 0 and "kind: Pod\n" in done.stdout, "rendered", file, done.stderr)


@suite.test
def what_is_converted_is_valid_and_stays_as_it_is() -> None:
    for file in sorted((HERE / "files").glob("old-*.yaml")):
        done = run(["convert", file.name])
        if done.returncode == 0:
            expect(
                "is valid" in run(["validate", "-"], stdin=done.stdout).stdout, "valid", file, done.stdout
            )
            expect(run(["convert", "-"], stdin=done.stdout).stdout == done.stdout, "unchanged", file)


@suite.test
def the_man_page_has_the_options_of_the_program() -> None:
    page = (ROOT / "operator/cli/kubectl-hvd.1").read_text()
    table = run(["__man"]).stdout
    expect(table in page, "make man-kubectl-hvd writes it", table)
    for command in re.findall(r"^\.It Cm (\S+)", table, re.M):
        done = run([command, "--help"])
        expect(
            done.returncode == 0 and done.stdout.startswith(f"usage: kubectl hvd {command}"), "help", done
        )


@suite.test
def wrong_arguments_are_named() -> None:
    for words, text in (
        (["lst"], 'no command "lst"; did you mean list?'),
        (["list", "--namspace", "x"], "did you mean --namespace?"),
        (["status"], "status: has 0 words after it"),
        (["logs", "train", "--rank"], "--rank: needs a value: N"),
        (["logs", "train", "--rank", "x"], '--rank: "x"'),
        (["scale", "train", "0"], 'N: "0"'),
        (["list", "--watch=x"], "--watch: takes no value"),
        (["-f", "x"], "-f: no such option"),
    ):
        done = run(words)
        expect(
            done.returncode == 1 and text in done.stderr and done.stderr.count("\n") == 1,
            "refused",
            words,
            done,
        )


@suite.test
def a_question_of_a_credential_plugin_is_shown_while_it_waits() -> None:
    with tempfile.NamedTemporaryFile(delete=False) as answer:
        process = subprocess.Popen(
            [PROGRAM, "list", "-n", "empty"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(HVD_ASK=answer.name),
            text=True,
        )
    asked = process.stderr.readline() if process.stderr else ""
    os.unlink(answer.name)
    process.communicate(timeout=60)
    expect(asked == "open a page to sign in\n" and process.returncode == 0, "the question", asked)


@suite.test
def a_timeline_is_written_to_a_file() -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = run(["timeline", "-n", "team", "train", "-o", f"{folder}/t.json"])
        text = Path(folder, "t.json").read_text()
        expect(done.returncode == 0 and text.startswith('[{"name"'), "its content", done, text)


def read_soon(read: int) -> bytes:
    """What comes next; b"" at the end. The time is there against hangs."""
    expect(bool(select.select([read], [], [], 120)[0]), "output or its end within two minutes")
    return os.read(read, 65536)


def start_watching() -> tuple[subprocess.Popen, int]:
    """list --watch in a process group of its own, after its first rows; and the end of its output."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [PROGRAM, "list", "-n", "team", "--watch"],
        stdout=write,
        stderr=write,
        env=environment(HVD_HANG="1"),
        start_new_session=True,
    )
    os.close(write)
    seen = b""
    while b"train" not in seen or b"mpi" not in seen:
        part = read_soon(read)
        expect(bool(part), "more output", seen.decode())
        seen += part
    return process, read


def rest_of(read: int) -> bytes:
    out = b""
    while part := read_soon(read):  # until every process that could write has ended
        out += part
    os.close(read)
    return out


@suite.test
def a_watched_list_has_a_line_for_each_change() -> None:
    """Both kinds come from streams of their own, in any order."""
    lines = run(["list", "-n", "team", "--watch"]).stdout.splitlines()
    once = run(["list", "-n", "team"]).stdout.splitlines()
    expect(lines[0].split() == once[0].split(), "the headers", lines)
    expect(sorted(x.split() for x in lines[1:]) == sorted(x.split() for x in once[1:]), "the jobs", lines)
    expect(len({x.index("HorovodJob") for x in lines if "HorovodJob" in x}) == 1, "aligned", lines)


@suite.test
def control_c_ends_a_watch_without_a_word() -> None:
    process, read = start_watching()
    os.killpg(process.pid, signal.SIGINT)
    ends = (-signal.SIGINT, 128 + signal.SIGINT)  # the second if this test runs with SIGINT ignored
    expect(process.wait(60) in ends, "ended by the signal", process.returncode)
    out = rest_of(read)
    expect(b"rror" not in out and b"Traceback" not in out, "no message", out.decode())


@suite.test
def no_kubectl_stays_behind() -> None:
    process, read = start_watching()
    process.kill()
    process.wait(60)
    rest_of(read)  # ends only when both children have


class Page:
    """kubectl hvd page, whose kubectl port-forward does what a FIFO says."""

    def __init__(self, *words: str):
        self.folder = tempfile.TemporaryDirectory()
        self.calls, self.answers, fifo = (Path(self.folder.name, x) for x in ("calls", "answers", "fifo"))
        os.mkfifo(fifo)
        self.orders = os.open(fifo, os.O_RDWR)
        self.calls.touch()
        self.now_leads("a")
        self.out, write_out = os.pipe()
        self.err, write_err = os.pipe()
        files = {"HVD_FORWARD": fifo, "HVD_CALLS": self.calls, "HVD_ANSWERS": self.answers}
        self.process = subprocess.Popen(
            [PROGRAM, "page", *words],
            stdout=write_out,
            stderr=write_err,
            env=environment(**{k: str(v) for k, v in files.items()}),
            start_new_session=True,
        )
        os.close(write_out)
        os.close(write_err)

    def now_leads(self, name: str, *gone: str) -> None:
        known = json.loads((HERE / "overlay.json").read_text())["answers"]
        lease = "get lease hvd-operator --ignore-not-found -o json --namespace ringmaster"
        pods = "get pods -l app.kubernetes.io/name=hvd-operator -o json --namespace ringmaster"
        known[lease]["out"]["spec"]["holderIdentity"] = f"hvd-operator-{name}_0b0e"
        items = known[pods]["out"]["items"]
        known[pods]["out"]["items"] = [x for x in items if x["metadata"]["name"][-1] not in gone]
        new = self.answers.with_suffix(".new")
        new.write_text(json.dumps({k: known[k] for k in (lease, pods)}))
        new.replace(self.answers)

    def order(self, word: str) -> None:
        os.write(self.orders, word.encode() + b"\n")

    def line(self, fd: int) -> str:
        text = b""
        while not text.endswith(b"\n"):
            expect(bool(select.select([fd], [], [], 120)[0]), "a line within two minutes", text)
            part = os.read(fd, 1)
            if not part:
                os.killpg(self.process.pid, signal.SIGKILL)
                raise AssertionError(f"a line before the end: {text!r} {rest_of(self.err)!r}")
            text += part
        return text.decode()

    def forwards(self) -> list[str]:
        return [x for x in self.calls.read_text().splitlines() if x.startswith("kubectl port-forward")]

    def end(self) -> str:
        """By Ctrl-C; what it has printed after the lines that were read."""
        os.killpg(self.process.pid, signal.SIGINT)
        ends = (-signal.SIGINT, 128 + signal.SIGINT)
        expect(self.process.wait(60) in ends, "ended by the signal", self.process.returncode)
        rest = rest_of(self.out) + rest_of(self.err)
        os.close(self.orders)
        return rest.decode()


@suite.test
def page_prints_one_line_and_no_argument_has_the_token() -> None:
    page = Page("train", "-n", "team")
    url = page.line(page.out)
    there = Path("/proc", str(page.process.pid), "cmdline").read_bytes()
    expect(url == "http://127.0.0.1:40001/#token=sample-token&go=/horovodjobs/team/train\n", "the URL", url)
    expect(page.end() == "", "one line, and none at the end")
    calls = page.calls.read_text()
    expect("create token hvd-page --audience hvd-page --duration 8h --n" in calls, "a new token", calls)
    expect("sample-token" not in calls and b"sample-token" not in there, "no argument", calls)
    expect(
        page.forwards()
        == ["kubectl port-forward pod/hvd-operator-a --address 127.0.0.1 :8090 --namespace ringmaster"],
        "to the pod that leads, only from this host",
        calls,
    )


@suite.test
def page_takes_the_token_of_a_file() -> None:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("sample+own/token=\n")
        file.flush()
        page = Page("mpijob/mpi", "-n", "team", "--token-file", file.name, "--port", "40002")
        url = page.line(page.out)
    page.end()
    want = "http://127.0.0.1:40002/#token=sample%2Bown%2Ftoken%3D&go=/mpijobs/team/mpi\n"
    expect(url == want, "encoded, so that it is one value", url)
    calls = page.calls.read_text()
    expect("create token" not in calls and "sample" not in calls, "no other token, no argument", calls)


@suite.test
def page_forwards_to_the_next_leader_when_the_pod_has_ended() -> None:
    page = Page()
    url = page.line(page.out)
    expect(url == "http://127.0.0.1:40001/#token=sample-token\n", "without a job", url)
    page.now_leads("b", "a")
    page.order("end")
    notes = [page.line(page.err), page.line(page.err)]
    expect(
        notes
        == [
            "kubectl-hvd: hvd-operator-a: lost connection to pod\n",
            "kubectl-hvd: hvd-operator-b: forwards to it\n",
        ],
        "both are reported",
        notes,
    )
    page.now_leads("c", "a", "b")  # and there is no pod for a while
    page.order("end")
    notes = [page.line(page.err), page.line(page.err)]
    expect("trying again" in notes[1] and "no operator is there" in notes[1], "waits", notes)
    page.now_leads("a")
    expect("hvd-operator-a: forwards" in page.line(page.err), "continues")
    expect(page.end() == "", "and the URL stays the same")
    ports = [x.split()[2:6] for x in page.forwards()]
    want = [["a", ":8090"], ["b", "40001:8090"], ["a", "40001:8090"]]
    expect(
        ports == [[f"pod/hvd-operator-{pod}", "--address", "127.0.0.1", p] for pod, p in want],
        "on the same port",
        ports,
    )


@suite.test
def page_leaves_a_pod_that_does_not_lead_any_more() -> None:
    """That pod may live on; the page in the browser connects again, because the pod answers 503."""
    page = Page()
    page.line(page.out)
    page.order("connection")
    page.now_leads("b")
    page.order("connection")
    notes = [page.line(page.err), page.line(page.err)]
    expect("hvd-operator-a: does not lead any more" in notes[0], "the reason", notes)
    expect("hvd-operator-b: forwards to it" in notes[1], "the next one", notes)
    page.end()
    expect(len(page.forwards()) == 2, "one after the other", page.forwards())


if __name__ == "__main__":
    sys.exit(suite.main(sys.argv[1:]))
