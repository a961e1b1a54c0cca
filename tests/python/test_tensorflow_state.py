# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNormalization, elastic states and tf.data service with TensorFlow, its devices, and torch beside it;
the programs of TensorFlow's sections in runtime/python/README.md."""

from job import JobTest, each_tf, only_tf, packages

# tensorflow_devices.py makes two CPUs, which it must before TensorFlow starts; tensorflow_elastic.py ends the world.
SCRIPTS = (
    "tensorflow_devices.py",
    "readme_tensorflow.py",
    "tensorflow_sync_batch_norm.py",
    "tensorflow_data_service.py",
    "tensorflow_elastic.py",
)


@each_tf
class TensorFlowState(JobTest):
    def test_2(self):
        # 2.15 has the README's program of the data service; all of it: test_full.py
        scripts = [s for s in SCRIPTS if self.tf == "tf" or "data_service" not in s]
        self.run_checks(2, tuple(scripts), timeout=300)

    @only_tf("tf")  # the other order, and 2.15: test_full.py
    def test_torch_after_tensorflow_2(self):
        self.run_checks(2, "tensorflow_and_torch.py", "first", packages("torch"), label="TensorFlow, torch")
