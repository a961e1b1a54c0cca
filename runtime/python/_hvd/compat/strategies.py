# SPDX-License-Identifier: Apache-2.0
"""``python -m horovod.compat.strategies SCRIPT``: a script for TensorFlow's own strategies, in every role.

    TF_CONFIG, of any launcher
      |-- worker, ps of a cluster with ps --> cluster.py: TensorFlow's server until the chief ends
      '-- chief, evaluator, worker without ps --> the script, with
            ParameterServerStrategy() that reads TF_CONFIG by itself   here
            steps of fit() and evaluate()                              keras_steps.py
            threads of its coordinators that end before Python does    coordinators.py
            Keras 2, because Keras 3 works in one process only         keras_2.py

program.py runs the script. Its own import loads TensorFlow, so what it sets in os.environ before counts.
"""

import builtins
import functools
import importlib.metadata
import importlib.util
import sys

from _hvd import frameworks
from _hvd.compat import cluster, coordinators, keras_2, keras_steps, program

_NAME = "horovod.compat.strategies"


def main(arguments=None):
    """Runs the program that the command line names, or the server of this process' role."""
    command = program.Command(_NAME, arguments)
    task = cluster.read_task(_NAME)
    if task and task.is_server:
        cluster.serve(task, lambda: frameworks.need("tensorflow", _NAME))
    if task and task.is_multiple:
        _choose_keras(task)
    if task and task.is_chief:
        cluster.announce(task)
    sys.meta_path.insert(0, _Finder())
    command.run(builtins)


class _Finder:
    """Patches TensorFlow when the script's import has loaded it. Libraries only look for it before."""

    _is_asking = False

    def find_spec(self, name, path=None, target=None):
        if name != "tensorflow" or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_asking = False
        if spec and spec.loader:
            spec.loader.exec_module = self._patching(spec.loader.exec_module)
        return spec

    def _patching(self, load):
        def exec_module(module):
            sys.meta_path.remove(self)
            load(module)
            _give_resolver(module)
            keras_steps.install(module)
            coordinators.install(module)

        return exec_module


def _choose_keras(task):
    """Keras 2 for several processes, with a line from one of them."""
    try:
        installed = importlib.metadata.version("keras")
    except importlib.metadata.PackageNotFoundError:
        return
    if installed.startswith("3.") and keras_2.choose() and task.is_first:
        version = importlib.metadata.version("tf_keras")
        print(
            f"{_NAME}: Keras {installed} does not support the strategies of several processes: tf.keras is "
            f"tf_keras {version} (TF_USE_LEGACY_KERAS=1)",
            file=sys.stderr,
        )


def _give_resolver(tf):
    """ParameterServerStrategy() has TF_CONFIG for its default, as the other strategies have."""
    strategy = tf.distribute.ParameterServerStrategy
    given = strategy.__init__

    @functools.wraps(given)
    def __init__(self, cluster_resolver=None, *args, **kwargs):
        if cluster_resolver is None:
            if not cluster.read_task(_NAME):
                raise RuntimeError(
                    "TF_CONFIG is unset: ParameterServerStrategy needs a chief, workers and servers; start "
                    "them by horovodrun --framework tf-ps, srun --hvd=framework=tf-ps or a HorovodJob of "
                    "framework tensorflow"
                )
            cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        given(self, cluster_resolver, *args, **kwargs)

    strategy.__init__ = __init__
