# SPDX-License-Identifier: Apache-2.0
"""Starts horovodrun for the tests. BIN: folder of the programs (default: $BUILD/plain/bin)."""

import json
import os
import subprocess

from tap import Program, Skip, read, same, wait_until, write

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.abspath(
    os.environ.get("BIN", os.path.join(ROOT, os.environ.get("BUILD", "build"), "plain/bin"))
)
HOROVODRUN = os.path.join(BIN, "horovodrun")
LOOP = "while :; do sleep 0.05; done"
UNTIL_GO = "while [ ! -e {0}/go ]; do sleep 0.02; done"
PLACE = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")


def environment(**more):
    env = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("HOROVOD_", "HVD_", "SLURM_", "OMPI_", "PMI"))
    }
    env.update(more)
    return env


def start(folder, *words, env=None, name="run", **more):
    return Program([HOROVODRUN, *words], env or environment(TMPDIR=folder), folder, name, **more)


def run(folder, *words, code=0, **more):
    program = start(folder, *words, **more)
    got = program.end()
    assert got == code, f"exit code {got}, wanted {code}\n{program.out}{program.err}"
    return program


def start_ranks(folder, n, script, *flags, shell="sh", **more):
    """Starts n ranks of a shell script."""
    return start(folder, "-np", str(n), *flags, shell, "-c", script, **more)


def run_ranks(folder, n, script, *flags, shell="sh", **more):
    """Runs n ranks of a shell script to their end."""
    return run(folder, "-np", str(n), *flags, shell, "-c", script, **more)


def wait_for_ranks(folder, n=2):
    """Until each of n ranks has made its file up.RANK in folder."""
    wait_until("ranks are up", lambda: all(os.path.exists(f"{folder}/up.{i}") for i in range(n)))


def check_environment(folder, rank, place, **more):
    """A rank's environment, which it wrote to env.RANK: has its place and these variables; returns it."""
    env = dict(p.split("=", 1) for p in read(f"{folder}/env.{rank}").split("\0") if p)
    wanted = {f"HOROVOD_{name}": value for name, value in zip(PLACE, place)}
    for name, value in {**wanted, **more}.items():
        same(env.get(name), str(value), f"{name} of rank {rank}")
    return env


def tf_tasks(folder, n):
    """What n ranks of a command run as TensorFlow's tasks, and how to read it afterwards: (words, read()).

    Each writes TF_CONFIG to a file. The chief ends when all have, the rest would stay for ever.
    """
    script = (
        f'echo "$TF_CONFIG" >{folder}/new.$HOROVOD_RANK; mv {folder}/new.$HOROVOD_RANK {folder}/tf.$HOROVOD_RANK; '
        'case $TF_CONFIG in *\'"type": "chief"\'*) ;; *\'"chief"\'*) exec sleep 1000 ;; esac; '
        f"until [ $(ls {folder}/tf.* | wc -l) -ge {n} ]; do sleep 0.05; done"
    )
    return ["sh", "-c", script], lambda: [json.loads(read(f"{folder}/tf.{r}")) for r in range(n)]


def met(n):
    """What n ranks of launch-rank print, sorted."""
    total = n * (n - 1) // 2
    return sorted(f"[{r}]<stdout>:rank {r} of {n} met ranks that add up to {total}" for r in range(n))


def scratch(folder):
    """What launchers with this TMPDIR have not removed."""
    return [n for n in os.listdir(folder) if n.startswith("hvd-")]


def pid_namespace():
    """What runs a command as process 1 of a PID namespace."""
    if os.geteuid() != 0:
        raise Skip("needs root for a PID namespace")
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        raise Skip("PID namespaces are not allowed here")
    return inside


def variables(folder, *words, **more):
    """The environment of rank 0 with these flags."""
    text = run(folder, "-np", "1", *words, "env", **more).out
    return dict(line.split(":", 1)[1].split("=", 1) for line in text.splitlines() if "=" in line)


def executable(path, text):
    write(path, text)
    os.chmod(path, 0o755)
    return path


def agent_of_another_version(path):
    """Writes an hvd-agent of another version; returns horovodrun's words about both."""
    agent = f"{BIN}/hvd-agent"
    own = subprocess.run([agent, "--version"], stdout=subprocess.PIPE, check=True).stdout.strip()
    other = b"9" * len(own)
    with open(agent, "rb") as f, open(path, "wb") as copy:
        copy.write(f.read().replace(own + b"\0", other + b"\0"))
    os.chmod(path, 0o755)
    return f"its hvd-agent has version {other.decode()}, this horovodrun has {own.decode()}"


def up(folder, n):
    """The pids of n looping() ranks, once all are there."""
    wait_until("ranks are up", lambda: all(read(f"{folder}/up.{i}") for i in range(n)))
    return [int(read(f"{folder}/up.{i}")) for i in range(n)]


def looping(folder, first="", shell="sh", loop=LOOP):
    """A rank that carries out first, writes its pid for up() and stays in the loop."""
    pid = f"echo $$ > {folder}/.up.$HOROVOD_RANK; mv {folder}/.up.$HOROVOD_RANK {folder}/up.$HOROVOD_RANK"
    return [shell, "-c", "; ".join(filter(None, (first, pid, loop)))]
