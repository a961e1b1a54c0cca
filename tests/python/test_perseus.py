# SPDX-License-Identifier: Apache-2.0
"""perseus: every module and public name of horovod is there, as the same object, in the forms that scripts
import; and a missing framework raises one clear error, by both.

The forms were collected from AIACC's documents and demos and from public repositories.
"""

import unittest

from job import DEBIAN_PYTHON, STAGE, command, python, venv

# every module of the tree: the same object by both names, and so are its public names
TABLE = """if 1:
    import importlib, pathlib, sys
    import perseus
    frameworks, tree = sys.argv[1].split(), pathlib.Path(sys.argv[2])
    for framework in frameworks:
        for path in sorted(tree.joinpath("horovod", framework).rglob("*.py")):
            name = ".".join(path.relative_to(tree).with_suffix("").parts)
            name = name[:-9] if name.endswith(".__init__") else name
            theirs = name.replace(f"horovod.{framework}", f"perseus.{framework}.horovod", 1)
            a, b = importlib.import_module(theirs), importlib.import_module(name)
            assert a is b and a.__name__ == a.__spec__.name == name, (a, b, a.__spec__)
            assert sys.modules[theirs] is a
            for public in getattr(b, "__all__", [n for n in vars(b) if n[0] != "_"]):
                assert getattr(a, public) is getattr(b, public), (theirs, public)
            print(theirs)
"""

FORMS = {  # script: the framework that it needs
    "import perseus.torch.horovod as hvd; use = hvd.DistributedOptimizer, hvd.broadcast_parameters": "torch",
    "from perseus.torch import horovod as hvd; use = hvd.broadcast_optimizer_state": "torch",
    "import perseus.torch.horovod; hvd = perseus.torch.horovod; use = hvd.elastic.TorchState": "torch",
    "import perseus.torch.horovod as hvd; from perseus.torch.horovod.elastic import state; use = state": "torch",
    "import perseus.tensorflow.horovod as hvd; use = hvd.DistributedOptimizer, hvd.DistributedGradientTape": "tensorflow",
    "import perseus.tensorflow.horovod as hvd; use = hvd.BroadcastGlobalVariablesHook(0)": "tensorflow",
    "import perseus.tensorflow.horovod as hvd; use = hvd.keras.callbacks.MetricAverageCallback()": "tensorflow",
    "import perseus.tensorflow.horovod as hvd; use = hvd.keras.callbacks.BroadcastGlobalVariablesCallback(0)": "tensorflow",
    "import horovod.tensorflow as hvd; use = hvd.keras.callbacks.BroadcastGlobalVariablesCallback(0)": "tensorflow",
    "import perseus.tensorflow.horovod as hvd; use = hvd.keras.DistributedOptimizer": "tensorflow",
    "import perseus.tensorflow.horovod.keras as hvd; use = hvd.callbacks.BroadcastGlobalVariablesCallback(0)": "tensorflow",
    "import perseus.tensorflow.horovod.keras as hvd; use = hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=3, verbose=1)": "tensorflow",
    "from perseus.tensorflow.horovod import keras as hvd; use = hvd.DistributedOptimizer": "tensorflow",
    "import perseus.keras.horovod as hvd; use = hvd.DistributedOptimizer, hvd.callbacks.MetricAverageCallback()": "keras",
    "from perseus.keras.horovod.callbacks import LearningRateWarmupCallback as use; import perseus.keras.horovod as hvd": "keras",
}
# hvd.keras is imported on first use: it takes a second, which a script without it does not spend.
LAZY = """if 1:
    import sys
    import perseus.tensorflow.horovod as hvd
    assert not {"_hvd.keras", "horovod.keras", "horovod.tensorflow.keras"} & set(sys.modules)
    import horovod.tensorflow
    callback = hvd.keras.callbacks.BroadcastGlobalVariablesCallback(0)
    assert callback.__class__ is horovod.tensorflow.keras.callbacks.BroadcastGlobalVariablesCallback
    import perseus.tensorflow.horovod.keras
    assert hvd.keras is horovod.tensorflow.keras is sys.modules["perseus.tensorflow.horovod.keras"]
    try:
        hvd.nothing
    except AttributeError as e:
        assert str(e) == "module 'horovod.tensorflow' has no attribute 'nothing'", e
    else:
        raise AssertionError("hvd.nothing")
"""
RUN = "\n".join(["hvd.init()", "assert (hvd.rank(), hvd.size()) == (0, 1) and use", "hvd.shutdown()"])
# after TABLE, in the same process: a start of TensorFlow takes seconds
ALL_FORMS = """if 1:
    import traceback
    for number, form in enumerate(sys.argv[3:]):
        try:
            exec(form, {"__name__": f"form{number}"})
        except BaseException:
            traceback.print_exc()
        else:
            print("GOOD", number)
    wrong = [f"perseus.{framework}.{name}" for framework in frameworks for name in ("horovod.nothing", "other")]
    for name in (*wrong, "perseus.mxnet"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as e:
            assert str(e) == f"No module named '{name}'", e
        else:
            raise AssertionError(name)
"""

# whatever is imported of a package, other than torch in tensorflow's tree
MISSING = """if 1:
    import importlib, sys
    class Without:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in ("torch", "tensorflow", "keras"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    sys.meta_path.insert(0, Without())
    try:
        importlib.import_module(sys.argv[1])
    except ModuleNotFoundError as e:
        print(f"{e.name}: {e}")
"""


# 2049 is no number of 16 bits
SUM = """if 1:
    import torch, perseus.torch.horovod as hvd
    hvd.init()
    print("sum", hvd.allreduce(torch.full((4096,), 2049.0), op=hvd.Sum, name="x")[0].item())
    hvd.shutdown()
"""


class Variables(unittest.TestCase):
    def printed(self, code=0, **variables):
        job = [STAGE / "bin/perseusrun", "-np", 2, DEBIAN_PYTHON, "-c", SUM]
        ended = command(job, HOROVOD_LOG_LEVEL="info", **variables)
        self.assertEqual(ended.code, code, ended)
        return ended.out

    def test_gradients_have_16_bits_only_if_they_are_asked_for(self):
        self.assertEqual(self.printed(PERSEUS_ALLREDUCE_DTYPE="0").count("sum 4096.0"), 2)
        out = self.printed(PERSEUS_ALLREDUCE_FUSION="32", PERSEUS_ALLREDUCE_MODE="auto")
        self.assertEqual(out.count("sum 4098.0"), 2)
        self.assertEqual(out.count("in Perseus PERSEUS_ALLREDUCE_DTYPE is 0 (fp16) by default"), 1, out)
        out = self.printed(PERSEUS_ALLREDUCE_DTYPE="0", HVD_COMPRESSION="none")
        self.assertEqual(out.count("sum 4098.0"), 2)

    def test_a_wrong_value_is_one_sentence(self):
        out = self.printed(1, PERSEUS_ALLREDUCE_DTYPE="7")
        self.assertRegex(out, r'(?m):ValueError: PERSEUS_ALLREDUCE_DTYPE: "7" is not a number from 0 to 2$')


class Perseus(unittest.TestCase):
    def ok(self, code, *args, **options):
        ended = python(code, *args, timeout=600, **options)
        self.assertEqual(ended.code, 0, ended)
        return ended.out

    def table_and_forms(self, wanted, **options):
        """Prints of TABLE, which must have the wanted modules; the forms of these frameworks all work.

        wanted: {framework: [what is behind perseus.FRAMEWORK.horovod]}
        """
        forms = [f"{form}\n{RUN}" for form, needs in FORMS.items() if needs in wanted]
        out = self.ok(TABLE + ALL_FORMS, " ".join(wanted), STAGE / "python", *forms, **options)
        self.assertEqual(out.count("GOOD"), len(forms), out)
        names = {f"perseus.{framework}.horovod{w}" for framework, of in wanted.items() for w in of}
        self.assertLessEqual(names, set(out.split()))

    def test_torch(self):
        self.table_and_forms({"torch": ["", ".elastic", ".elastic.state", ".distributed"]})

    def test_tensorflow_and_keras(self):
        wanted = {"tensorflow": ["", ".keras", ".keras.callbacks"], "keras": ["", ".callbacks"]}
        for name in ("tf", "tf215"):
            self.table_and_forms(wanted, python=venv(name))

    def test_keras_is_an_attribute_that_is_imported_on_first_use(self):
        for name in ("tf", "tf215"):
            self.ok(LAZY, python=venv(name))

    def test_no_framework_is_imported_before_its_module(self):
        self.ok("""if 1:
            import sys
            import perseus, perseus.torch, perseus.tensorflow, perseus.keras
            assert not {"torch", "tensorflow", "keras", "numpy"} & set(sys.modules)
        """)

    def test_a_missing_framework_is_one_sentence(self):
        for module, wanted in (
            ("horovod.torch", "torch: horovod.torch needs PyTorch 1.13 or later"),
            ("horovod.torch.mpi_ops", "torch: horovod.torch needs PyTorch"),
            ("perseus.torch.horovod", "torch: horovod.torch needs PyTorch"),
            ("horovod.tensorflow", "tensorflow: horovod.tensorflow needs TensorFlow 2.12 or later"),
            ("perseus.tensorflow.horovod.mpi_ops", "tensorflow: horovod.tensorflow needs TensorFlow"),
            ("horovod.keras", "keras: horovod.keras needs Keras 2.12 or later"),
        ):
            out = self.ok(MISSING, module)
            self.assertEqual(len(out.splitlines()), 1, out)
            self.assertIn(wanted, out)
            self.assertRegex(
                out, r"which \S+python3\S* does not find: pip install (torch|tensorflow|keras) "
            )

    def test_an_error_inside_of_a_framework_goes_through(self):
        ended = python("""if 1:
            import sys, types
            sys.modules["_posixsubprocess"] = None  # whatever: an import that torch makes
            import horovod.torch
        """)
        self.assertEqual(ended.code, 1, ended)
        self.assertNotIn("needs PyTorch", ended.out)
        self.assertIn("import of _posixsubprocess halted", ended.out)
