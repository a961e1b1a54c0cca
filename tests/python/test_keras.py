# SPDX-License-Identifier: Apache-2.0
"""Keras 2 and 3 on each of their back ends: gradients are reduced once, callbacks, values, real digits.

HVD_TEST_KERAS=full (make test-full): all checks, everything on every back end, legacy optimizers, Keras 2 with
the newest TensorFlow. Digits on 1 and 4 ranks: test_full.py.
"""

import os

from job import ROOT, STAGE, JobTest, packages, venv

FULL = os.environ.get("HVD_TEST_KERAS") == "full"
SCRIPTS = ("keras_train.py", "keras_options.py", "keras_callbacks.py")
ALIKE = "keras_alike.py"  # ranks make unlike models, so it is the last one
CONVERGENCE = ("convergence.py keras",)


def paths(*names):
    """PYTHONPATH with the packages of other environments of tests/setup/venv."""
    return ":".join([str(STAGE / "python"), str(ROOT / "tests/python/digits"), *map(packages, names)])


class Keras(JobTest):
    def run_flavour(self, label, python, want, n=2, besides=(), more=CONVERGENCE, only=(), **options):
        """besides: other environments; more: scripts that the time of `make test` allows here; only: instead of
        all."""
        scripts = only or (*SCRIPTS, *more, ALIKE)
        self.run_checks(
            n,
            scripts if FULL else tuple(f"{script} short" for script in scripts),
            label=f"keras {label}",
            python=venv(python),
            WANT_KERAS=want,
            PYTHONPATH=paths(*besides),
            TF_NUM_INTRAOP_THREADS="1",  # as many as a rank has processors
            timeout=900,
            **options,
        )

    def test_3_tensorflow(self):
        # test_tensorflow_examples.py trains the same model on the same digits
        more = CONVERGENCE if FULL else ()
        self.run_flavour("3 tensorflow", "tf", "3", 2, ["keras2"], more, KERAS_BACKEND="tensorflow")

    def test_3_jax(self):
        more = CONVERGENCE if FULL else ()
        # LLVM's optimizations take longer than the steps
        options = {} if FULL else {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
        self.run_flavour("3 jax", "keras", "3", more=more, KERAS_BACKEND="jax", **options)

    def test_3_torch(self):
        """On 3 ranks: process sets of several, and one that is in none of them."""
        more = CONVERGENCE if FULL else ()
        self.run_flavour("3 torch", "keras", "3", 3, ["torch"], more, KERAS_BACKEND="torch")

    def test_2(self):
        self.run_flavour("2", "tf215", "2")

    if FULL:

        def test_process_sets(self):
            for want, python, backend in (
                ("3", "tf", "tensorflow"),
                ("3", "keras", "jax"),
                ("2", "tf215", ""),
            ):
                besides = ["keras2"] if python == "tf" else []
                options = {"only": ("keras_options.py",), "KERAS_BACKEND": backend}
                self.run_flavour(f"{want} {backend}", python, want, 3, besides, **options)

        def test_2_legacy(self):
            self.run_flavour("2 legacy optimizers", "tf215", "2 legacy", more=())

        def test_2_newest_tensorflow(self):
            self.run_flavour("2 tf_keras", "tf", "2", besides=["keras2"], more=(), TF_USE_LEGACY_KERAS="1")
