# SPDX-License-Identifier: Apache-2.0
"""What Horovod's elastic integration tests call of its launcher, by our horovodrun; for rank.py.

    integration/test_elastic_*.py -> elastic_common.py: parse_args(), _run_elastic(args)
                                        |  sys.argv: horovodrun ... python SCRIPT --logfile FILE
                                     horovodrun, as a program
                                        |
                                     the test compares the lines of FILE

The tests also set internals of Horovod's launcher: how often it runs the discovery script, and how many
hosts a job starts with. These names exist here so that the tests can set them, without an effect.

The scripts wait 3 s for the announcement of new hosts, which Horovod makes when it discovers them. Ours
comes when their processes are ready, after the imports of their frameworks. So the scripts get more time.
"""

import subprocess
import sys
import types

from _hvd.run import find_launcher

_FAILED = "Horovod detected that one or more processes exited with non-zero status"
_RESET_LIMIT = "the world was reset {} times"
_PATIENCE = ("--discovery-wait", "60")
_LAST_BYTES = 4000


def parse_args():
    return sys.argv[1:]


def run_elastic(words):
    """Runs horovodrun; raises RuntimeError with what it printed last, if it fails."""
    first = words.index("python")
    command = [find_launcher(), *words[:first], sys.executable, *words[first + 1 :], *_PATIENCE]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    text = ended.stdout.decode(errors="replace")
    print(text, flush=True)
    if ended.returncode:
        raise RuntimeError(f"{_FAILED}: {ended.returncode}\n{text[-_LAST_BYTES:]}")


def _add(name, **values):
    """A module horovod.NAME with these values, or the values to the module that exists."""
    whole = f"horovod.{name}"
    above, _, last = whole.rpartition(".")
    try:
        __import__(whole)
    except ModuleNotFoundError:
        sys.modules[whole] = types.ModuleType(whole)
        __import__(above)
        setattr(sys.modules[above], last, sys.modules[whole])
    for key, value in values.items():
        setattr(sys.modules[whole], key, value)


def install():
    """Adds the names. Not with the original Horovod, which has them."""
    _add("runner.launch", parse_args=parse_args, _run_elastic=run_elastic)
    _add("runner.common.util.config_parser", set_env_from_args=lambda env, args: None)
    _add("runner.elastic.constants", RESET_LIMIT_EXCEEDED_MESSAGE=_RESET_LIMIT)
    _add("runner.elastic.driver", DISCOVER_HOSTS_FREQUENCY_SECS=1.0, ELASTIC_TIMEOUT_SECS=600)
    _add("runner.gloo_run", _get_min_start_hosts=None)
