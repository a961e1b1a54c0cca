# SPDX-License-Identifier: Apache-2.0
"""For `make test-full`: torch.compile, large objects, and PyTorch and TensorFlow on other numbers of ranks."""

import test_convergence
import test_examples
import test_howto
import test_torch
from job import JobTest, each_tf, horovodrun, only_tf, packages, venv
from test_examples import Runs, number
from test_keras import paths
from test_tensorflow import DIGITS, EAGER, OPTIMIZER, PATHS, SCRIPTS, TAPE, TensorFlow
from test_tensorflow_examples import TensorFlowExamples
from test_tensorflow_gpu import SCRIPT_ON_GPU, gpus


class Compiled(JobTest):
    def test_2(self):
        self.run_checks(
            2, "torch_compile.py", python=venv("torch"), label="newest torch, compiled", timeout=240
        )


class CompiledHowTo(test_howto.Pages):
    def test_2(self):
        self.run_section("HOWTO.md", "Compile a model", 0, venv("torch"))


class Objects(JobTest):
    def test_of_more_than_2_gib(self):
        self.run_checks(2, "big_object.py", timeout=240)


class ConvergenceOn4(test_convergence.Convergence):
    test_1 = test_2 = None

    def test_4(self):
        self.train(4)


class NewestTorchOn4(JobTest):
    torch, python = "torch", property(lambda self: venv("torch"))

    def test_operations_and_optimizer(self):
        self.run_checks(4, (*test_torch.SCRIPTS[:3], *test_torch.OPERATIONS))

    def test_back_end(self):
        self.run_checks(4, "pg_collectives.py")


class NewestExamples(Runs):
    python = property(lambda self: venv("torch"))
    uneven = test_examples.Examples.uneven
    test_ddp = test_examples.Examples.test_ddp
    test_synthetic_benchmark = test_examples.Examples.test_synthetic_benchmark
    test_uneven_data_by_join = test_examples.Examples.test_uneven_data_by_join


class OlderTensorFlowExamples(TensorFlowExamples):
    tf = "tf215"


class Keras3Examples(Runs):
    def test_on_torch(self):
        ended = self.run_example("KERAS_BACKEND=torch", 0, venv("torch"), packages("keras"))
        self.assertGreaterEqual(
            number(r"keras_digits by torch: held-out accuracy ([01]\.\d+)", ended), 0.95
        )

    def test_on_jax(self):
        ended = self.run_example("KERAS_BACKEND=jax", 0, venv("keras"))
        self.assertGreaterEqual(number(r"keras_digits by jax: held-out accuracy ([01]\.\d+)", ended), 0.95)


del TensorFlowExamples  # has been run with the other tests


@each_tf
class KerasConvergence(JobTest):
    def test_digits_1_and_4(self):
        for n in (1, 4):
            self.run_checks(n, "convergence.py", "keras", PYTHONPATH=paths(), timeout=280)


@each_tf
class MoreTensorFlow(JobTest):
    def test_1_3_and_4(self):
        for n in (1, 3, 4):
            self.run_checks(n, SCRIPTS, timeout=300, WANT_MODE="asynchronous")

    def test_3_blocking(self):
        options = {"WANT_MODE": "blocking", "HVD_TF_BLOCKING": "1"}
        self.run_checks(3, SCRIPTS, label="blocking", timeout=300, **options)


@each_tf
class MoreTapes(JobTest):
    def test_1_3_and_4(self):
        for n in (1, 3, 4):
            self.run_checks(n, TAPE, timeout=300)

    def test_convergence_of_others(self):
        for n in (1, 4) if self.tf == "tf" else (1, 2, 4):
            self.run_checks(n, "convergence.py", "tape", timeout=400, **DIGITS)

    def test_2_blocking(self):
        self.run_checks(2, TAPE, label="blocking", timeout=300, HVD_TF_BLOCKING="1")


@each_tf
class MoreTensorFlowV1(JobTest):
    def test_convergence_1_and_4(self):
        for n in (1, 4):
            self.run_checks(n, "convergence.py", "v1", PYTHONPATH=PATHS, timeout=400)

    def test_1(self):
        self.run_checks(1, (*EAGER, OPTIMIZER), timeout=400, PYTHONPATH=PATHS)

    @only_tf("tf")
    def test_2_without_tensorflow_2s_behaviour(self):
        self.run_checks(2, ("v1_sessions.py v1", OPTIMIZER), timeout=300)

    @only_tf("tf215")
    def test_2(self):
        self.run_checks(2, EAGER, timeout=300, PYTHONPATH=PATHS)


@each_tf
class MoreTensorFlowState(JobTest):
    @only_tf("tf215")
    def test_data_service_2(self):
        self.run_checks(2, "tensorflow_data_service.py", timeout=240)

    @only_tf("tf215")
    def test_torch_after_tensorflow_2(self):
        words = "tensorflow_and_torch.py", "first"
        self.run_checks(2, *words, TORCH_PACKAGES=packages("torch"), label="TensorFlow, torch", timeout=240)

    @only_tf("tf")  # whose libraries and torch's are of about the same age, so that they could meet
    def test_tensorflow_after_torch_2(self):
        words = "tensorflow_and_torch.py", "last"
        self.run_checks(2, *words, TORCH_PACKAGES=packages("torch"), label="torch, TensorFlow", timeout=240)


@each_tf
class MoreTensorFlowGpu(JobTest):
    def test_2(self):
        cuda = "12040" if self.tf == "tf" else "12050"
        self.run_checks(2, SCRIPT_ON_GPU, timeout=240, label=f"CUDA {cuda}", **gpus(cuda))


class OlderTensorFlow(TensorFlow):
    """What test_tensorflow.py leaves to one TensorFlow."""

    tf, python = "tf215", property(lambda self: venv("tf215"))
    test_2 = test_2_training_and_states = None

    def test_a_lost_world_is_reported_2(self):
        ended = horovodrun(2, "tensorflow_lost.py", python=self.python, timeout=300, outlived=True)
        self.assertEqual(ended.code, 137, ended)  # that of the rank that was killed
        self.assert_lost_world_reported(ended)


del TensorFlow
