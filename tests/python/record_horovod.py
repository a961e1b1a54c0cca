# SPDX-License-Identifier: Apache-2.0
"""record_horovod.py: describes, as JSON, every public name of Horovod that a user of PyTorch, TensorFlow or
Keras touches.

The same program describes the original and this project's package, whichever is imported first:

    record_horovod.py --write           in the original's environment: writes horovod-0.28.1.json
    record_horovod.py --results DIR     writes horovod-0.28.1-results.json of what its two ranks said
    record_horovod.py --tensorflow      with the original's Python sources on the path, unbuilt, under
                                        TensorFlow 2.15: writes horovod-0.28.1-tensorflow.json
    compare_to()                        describes what is here under the names that the original has

For TensorFlow and Keras the original's modules are imported and inspected like those for PyTorch, but their
C++ library is not there: loading it yields an object that has every name (see Library). Names, parameters,
defaults and classes are all Python and come out as they are; no operation runs.

A description is {module: {name: what}}. What is, for each kind,
    a function      {"args": ["tensor", "average=None", "*rest", "*, flag=False", "**more"]}
    a class         {"class": [names of bases], "args": [...] of its constructor, "members": {name: what}}
    a value         {"value": repr}; a module {"module": name}; an instance {"instance": class}; of bases
                    and classes the original's direct ones, of ours all
    another name    {"same": "module.name"}: one object under several names, described at the first
Names with an underscore count where WANTED says so; horovod._keras, what horovod.keras and
horovod.tensorflow.keras are made of, does not. Of modules that mostly hold the originals' own
imports only what is defined there counts; of RE_EXPORTING modules all that comes from Horovod.
"""

import contextlib
import importlib
import inspect
import json
import sys
import types
from pathlib import Path

RECORD = Path(__file__).resolve().parent / "horovod-0.28.1.json"
RESULTS = RECORD.with_name("horovod-0.28.1-results.json")
TENSORFLOW_RECORD = RECORD.with_name("horovod-0.28.1-tensorflow.json")
TENSORFLOW_RESULTS = RECORD.with_name("horovod-0.28.1-tensorflow-results.json")

# In this order: an object is described where it is defined, before the modules that pass it on.
COMMON = [
    "horovod.common.exceptions",
    "horovod.common.process_sets",
    "horovod.common.util",
    "horovod.common.basics",
    "horovod.common.elastic",
]
TORCH = [
    *COMMON,
    "horovod.runner.common.util.env",
    "horovod.runner.util.threads",
    "horovod.runner",
    "horovod.torch.compression",
    "horovod.torch.mpi_ops",
    "horovod.torch.functions",
    "horovod.torch.optimizer",
    "horovod.torch.sync_batch_norm",
    "horovod.torch.elastic.sampler",
    "horovod.torch.elastic.state",
    "horovod.torch.elastic",
    "horovod.torch",
    "horovod",
]
TENSORFLOW = [
    "horovod.tensorflow.compression",
    "horovod.tensorflow.util",
    "horovod.tensorflow.mpi_ops",
    "horovod.tensorflow.functions",
    "horovod.tensorflow.gradient_aggregation",
    "horovod.tensorflow.gradient_aggregation_eager",
    "horovod.tensorflow.sync_batch_norm",
    "horovod.tensorflow.elastic",
    "horovod.tensorflow.data.compute_service",
    "horovod.tensorflow.data.compute_worker",
    "horovod.tensorflow",
    "horovod.tensorflow.keras.callbacks",
    "horovod.tensorflow.keras.elastic",
    "horovod.tensorflow.keras",
    "horovod.keras.callbacks",
    "horovod.keras.elastic",
    "horovod.keras",
]
MODULES = [*TORCH, *TENSORFLOW]
RE_EXPORTING = {
    "horovod",
    "horovod.keras",
    "horovod.keras.elastic",
    "horovod.runner",
    "horovod.tensorflow",
    "horovod.tensorflow.keras",
    "horovod.tensorflow.keras.elastic",
    "horovod.tensorflow.mpi_ops",
    "horovod.torch",
    "horovod.torch.elastic",
    "horovod.torch.mpi_ops",
}
# What of a module counts where little does; what the originals import for themselves or for type
# checkers; and underscored names that users' code, or Horovod's own tests, are known to touch.
ONLY = {"horovod.runner": {"run"}, "horovod.common.basics": {"HorovodBasics"}}
HIDDEN = {
    "horovod.common.process_sets": {"HorovodBasics", "MPI", "TYPE_CHECKING"},
    "horovod.tensorflow": {"check_extension", "gpu_available", "split_list"},
    "horovod.tensorflow.keras": {"is_version_greater_equal_than"},
    "horovod.tensorflow.mpi_ops": {
        "MPI_LIB",
        "check_installed_version",
        "get_average_backwards_compatibility_fun",
        "get_ext_suffix",
        "gpu_available",
        "num_rank_is_power_2",
    },
    "horovod.tensorflow.sync_batch_norm": {"Sum"},
    "horovod.torch": {"check_extension"},
    "horovod.torch.mpi_ops": {"Compression", "check_installed_version", "gpu_available"},
    "horovod.torch.optimizer": {"Adasum", "Average", "Sum"},
    "horovod.torch.sync_batch_norm": {"Sum"},
}
WANTED = {
    "horovod": {"__version__"},
    "horovod.common.util": {"_cache"},
    "horovod.tensorflow": {
        "_DistributedAdasumOptimizer",
        "_DistributedGradientTape",
        "_DistributedOptimizer",
        "_cache",
        "_executing_eagerly",
        "_make_allreduce_grads_fn",
        "_make_subgraph",
    },
    "horovod.tensorflow.mpi_ops": {
        "_allreduce",
        "_grouped_allreduce",
        "_grouped_reducescatter",
        "_normalize_name",
        "_reducescatter",
    },
    "horovod.tensorflow.util": {"_cache", "_executing_eagerly", "_make_subgraph"},
    "horovod.torch.optimizer": {"_DistributedOptimizer", "_DistributedAdasumOptimizer"},
}


def default_text(value):
    """A default by repr, without addresses and without telling whose class it is."""
    if inspect.isclass(value):
        return f"<class {value.__qualname__}>"
    if inspect.isroutine(value):
        return f"<function {value.__qualname__}>"
    # A process set shows its state, which depends on whether Horovod is initialized.
    if any(c.__name__ == "ProcessSet" for c in type(value).__mro__):
        return "<ProcessSet>"
    text = repr(value)
    return f"<{type(value).__name__}>" if text.startswith("<") else text


def arguments(function):
    """["name", "name=default", ...], without self."""
    said = []
    star = False
    for p in inspect.signature(function).parameters.values():
        text = p.name if p.default is p.empty else f"{p.name}={default_text(p.default)}"
        if p.kind is p.VAR_POSITIONAL:
            text, star = f"*{text}", True
        elif p.kind is p.VAR_KEYWORD:
            text = f"**{text}"
        elif p.kind is p.KEYWORD_ONLY and not star:
            text = f"*, {text}"
        elif p.kind is p.POSITIONAL_ONLY:
            text = f"{text}, /"
        said.append(text)
    return said


def own(obj):
    """Does it come from Horovod (or from the code behind its names here), not from another package?"""
    module = getattr(obj, "__module__", None) or type(obj).__module__
    return module.split(".")[0] in ("horovod", "_hvd")


def describe_class(cls, all_bases):
    bases = [b.__name__ for b in (cls.__mro__[1:] if all_bases else cls.__bases__) if b is not object]
    members = {}
    constructor = next(c for c in cls.__mro__ if "__init__" in vars(c) or c is object)
    for holder in reversed([c for c in cls.__mro__ if own(c)]):
        for name, raw in vars(holder).items():
            if name.startswith("_"):
                continue
            value = getattr(cls, name)
            if isinstance(raw, property):
                members[name] = {"property": True}
            elif inspect.isclass(value):
                members[name] = {"value": default_text(value)}
            elif callable(value):
                args = arguments(value)
                bound = isinstance(raw, (staticmethod, classmethod))
                members[name] = {"args": args if bound else args[1:]}
            else:
                members[name] = {"value": default_text(value)}
    args = arguments(cls) if own(constructor) else []
    return {"class": bases, "args": args, "members": dict(sorted(members.items()))}


def describe(value, all_bases=False):
    if inspect.isclass(value):
        return describe_class(value, all_bases)
    if isinstance(value, types.ModuleType):
        return {"module": value.__name__}
    if inspect.isroutine(value):
        return {"args": arguments(value)}
    if isinstance(value, (int, float, str, bool, type(None), list, tuple, dict, set)):
        return {"value": default_text(value) if not isinstance(value, set) else repr(sorted(value))}
    kinds = [c.__name__ for c in type(value).__mro__]
    return {"instance": kinds if all_bases else kinds[0]}


def names_of(module):
    """The names of a module that count."""
    wanted = WANTED.get(module.__name__, set())
    for name in sorted(vars(module)):
        value = getattr(module, name)
        if name.startswith("_") and name not in wanted:
            continue
        if name in HIDDEN.get(module.__name__, ()) or name not in ONLY.get(module.__name__, {name}):
            continue
        if isinstance(value, types.ModuleType):
            # import horovod.torch makes horovod.torch.elastic, which a script reaches as an attribute
            if value.__name__ == f"{module.__name__}.{name}" and value.__name__ in MODULES:
                yield name, value
        elif (
            isinstance(value, (int, float, str, bool, list, tuple, dict, set))
            or own(value)
            and (
                module.__name__ in RE_EXPORTING
                or (getattr(value, "__module__", None) or type(value).__module__) == module.__name__
            )
        ):
            yield name, value


def record(modules):
    """What the original has; what counts is decided from its modules."""
    found = {}
    first_name = {}
    for module_name in modules:
        module = importlib.import_module(module_name)
        said = found[module_name] = {}
        for name, value in names_of(module):
            simple = isinstance(value, (int, float, str, bool, type(None)))
            known = None if simple else first_name.setdefault(id(value), f"{module_name}.{name}")
            if known not in (None, f"{module_name}.{name}"):
                said[name] = {"same": known}
            else:
                said[name] = describe(value)
    return found


def find(path):
    """The object of a dotted name, whose modules are imported; AttributeError, ImportError."""
    module_name, name = path.rsplit(".", 1)
    return getattr(importlib.import_module(module_name), name)


def compare_to(wanted):
    """What is here under each name that the original has: described, or {"absent": why}."""
    found = {}
    for module_name, names in wanted.items():
        said = found[module_name] = {}
        for name, what in names.items():
            try:
                value = find(f"{module_name}.{name}")
                if getattr(value, "hvd_absent", False):
                    raise AttributeError("it only says that it is not there yet")
                if "same" in what and value is find(what["same"]):
                    said[name] = what
                else:
                    said[name] = describe(value, all_bases=True)
                    inherited = set(what.get("members", ())) - set(said[name].get("members", what))
                    for member in inherited & set(dir(value)):  # from another package
                        said[name]["members"][member] = {"args": ["*args", "**kwargs"]}
            except (AttributeError, ImportError) as e:
                said[name] = {"absent": str(e)}
    return found


def names_beside(wanted, module_name):
    """{name: the original's name of the same object, or null} for what a module has besides."""
    module = importlib.import_module(module_name)
    known = {}
    for other, names in wanted.items():
        for name in names:
            with contextlib.suppress(AttributeError, ImportError):
                known.setdefault(id(find(f"{other}.{name}")), f"{other}.{name}")
    hidden = HIDDEN.get(module_name, set()) | {"__version__"}
    beside = sorted(set(module.__all__) - set(wanted[module_name]) - hidden)
    return {name: known.get(id(getattr(module, name))) for name in beside}


def dump(found):
    """One name a line, so that a difference is read as one."""
    lines = []
    for module, names in found.items():
        rows = ",\n".join(f"  {json.dumps(n)}: {json.dumps(what)}" for n, what in names.items())
        lines.append(f"{json.dumps(module)}: {{\n{rows}\n }}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def write_results(directory, path):
    """{case: {rank: what it said}}; refused while a case of the original's own fails."""
    ranks = [json.loads((Path(directory) / f"{r}.json").read_text())["cases"] for r in range(2)]
    bad = [f"rank {r}: {n}: {c['error']}" for r in range(2) for n, c in ranks[r].items() if c["error"]]
    if bad:
        sys.exit("\n\n".join(bad))
    lines = []
    for name in ranks[0]:
        said = [json.dumps(r[name]["said"], separators=(",", ":")) for r in ranks]
        lines.append(f'{json.dumps(name)}: {{"0": {said[0]},\n "1": {said[1]}}}')
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


class Library:
    """Stands for the original's C++ library, which is not built: each name of it is a function."""

    REDUCE_OPS = ("average", "sum", "adasum", "min", "max", "product")

    def __getattr__(self, name):
        if name.startswith("horovod_reduce_op_"):
            return lambda: self.REDUCE_OPS.index(name[len("horovod_reduce_op_") :])
        return lambda *args, **kwargs: None


def import_unbuilt():
    """Makes the original's modules for TensorFlow importable without its C++ library."""
    import ctypes

    from horovod.common import util
    from tensorflow.python.framework import load_library

    load_library.load_op_library = ctypes.CDLL = lambda *args, **kwargs: Library()
    util.check_extension = util.check_installed_version = lambda *args: None


def record_tensorflow():
    import_unbuilt()
    found = record([*COMMON, *TENSORFLOW])
    return {module: found[module] for module in TENSORFLOW}


def main():
    import horovod

    if "ringmaster" in horovod.__version__:
        sys.exit("record_horovod.py: this is not the original Horovod")
    if sys.argv[1:2] == ["--results"]:
        write_results(sys.argv[2], RESULTS)
    elif sys.argv[1:2] == ["--tensorflow-results"]:
        write_results(sys.argv[2], TENSORFLOW_RESULTS)
    elif sys.argv[1:] == ["--tensorflow"]:
        TENSORFLOW_RECORD.write_text(dump(record_tensorflow()))
    else:
        RECORD.write_text(dump(record(TORCH)))


if __name__ == "__main__":
    main()
