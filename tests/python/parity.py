# SPDX-License-Identifier: Apache-2.0
"""parity.py: which names of Horovod 0.28.1 exist here and which tests call them; prints the tables of
runtime/python/PARITY.md.

    horovod-0.28.1*.json     names and signatures of the original       record_horovod.py
    ranks/symbols/*.py       a case or more for each symbol of PyTorch's, one job of two ranks; they compare
                             with numpy and with horovod-0.28.1-results.json, recorded by record.sh
    ranks/symbols_tf/*.py    the same for TensorFlow and Keras; those of recorded.py also with
                             horovod-0.28.1-tensorflow-results.json, recorded by record.sh --tensorflow-results
    here                     Suite.run() starts that job; differences() and rows() put both together

A symbol is tested when a case that is registered for it, and that the interpreter saw calling it,
passed on both ranks, under one of the frameworks that the cases run with. Nothing here must be maintained
by hand except DIFFERENT.
"""

import json
import tempfile
from pathlib import Path

from job import RANKS, horovodrun
from record_horovod import RECORD, TENSORFLOW_RECORD

# What is different on purpose, and why; the differences that a rule covers are not listed: parameters
# more at the end, members more, and a default where the original has none.
DIFFERENT = {
    "horovod.__version__": "Horovod's number, then this project's",
    "horovod.tensorflow._DistributedGradientTape": "the part that DistributedGradientTape() adds to the tape's class; "
    "no base of it, and there is no constructor to call",
    "horovod.torch.optimizer._DistributedOptimizer": "the part that DistributedOptimizer() adds to the user's class; "
    "no base of it (nor in Horovod), and there is no constructor to call",
    "horovod.torch.optimizer._DistributedAdasumOptimizer": "as _DistributedOptimizer",
}


def compare_arguments(wanted, here):
    """What is wrong with a list of parameters, or nothing."""
    if wanted == ["*args", "**kwargs"]:  # a wrapper of the original's, which takes anything
        return []
    wrong = []
    if wanted[-1:] == ["**kwargs"] and "**kwargs" in here:  # named ones are taken out of them
        wanted, here = wanted[:-1], [one for one in here if one != "**kwargs"]
    for i, want in enumerate(wanted):
        got = here[i] if i < len(here) else "nothing"
        lenient = "=" not in want and got.split("=")[0] == want
        if got != want and not lenient:
            wrong.append(f"parameter {i + 1} is {got}, not {want}")
    for more in here[len(wanted) :]:
        if "=" not in more and not more.startswith("*"):
            wrong.append(f"parameter {more} must be given")
    return wrong


def compare(wanted, here):
    """Differences between two descriptions (record_horovod.py) that a user would feel."""
    if "absent" in here:
        return [f"missing: {here['absent']}"]
    if "same" in wanted:
        return [] if here == wanted else [f"is not the same object as {wanted['same']}"]
    if wanted.keys() - here.keys():
        return [f"is {here}, not {wanted}"]
    wrong = []
    for base in wanted.get("class", []):
        if base not in here["class"]:
            wrong.append(f"is no {base}")
    for name, want in wanted.get("members", {}).items():
        got = here["members"].get(name, {"absent": name})
        wrong += [f"{name}: {text}" for text in compare(want, got)]
    if "instance" in wanted and wanted["instance"] not in here["instance"]:
        wrong.append(f"is no {wanted['instance']}")
    for what in ("value", "module", "property"):
        if wanted.get(what) != here.get(what) and what in wanted:
            wrong.append(f"is {here.get(what)}, not {wanted[what]}")
    return wrong + compare_arguments(wanted.get("args", []), here.get("args", []))


def passed(reports):
    """{symbol: [cases that passed on both ranks]}, less those that lacked what they need"""
    found = {}
    for name, case in reports[0]["cases"].items():
        both = [r["cases"].get(name, {"error": "was not reached"}) for r in reports]
        if not any(c["error"] or c.get("lacking") for c in both):
            for symbol in case["symbols"]:
                found.setdefault(symbol, []).append(name)
    return found


def some_of(cases):
    """The first of the cases by name, and how many more there are."""
    first, *rest = sorted(set(cases)) or [""]
    return f"{first}, {len(rest)} more" if rest else first


class Suite:
    """The cases of a framework: a report has the results of the two ranks of one job (symbols/main.py)."""

    def __init__(self, main, record, packages, heading):
        self.main, self.packages, self.heading = RANKS / main, packages, heading
        self.wanted = json.loads(record.read_text())

    def run(self, python, **options):
        """Runs all cases on two ranks; (the two reports, how the job ended)."""
        with tempfile.TemporaryDirectory() as directory:
            options.update(CHECKS_DIR=directory, HOROVOD_DYNAMIC_PROCESS_SETS="1", timeout=600)
            ended = horovodrun(2, self.main, python=python, **options)
            paths = [Path(directory) / f"{rank}.json" for rank in range(2)]
            if not all(p.exists() for p in paths):
                raise AssertionError(f"a rank has not reported; {ended}")
            return [json.loads(p.read_text()) for p in paths], ended

    def differences(self, here):
        """{symbol: text} for all that is missing or other than in the original, less DIFFERENT."""
        found = {}
        for module, names in self.wanted.items():
            for name, what in names.items():
                wrong = compare(what, here[module][name])
                if wrong and f"{module}.{name}" not in DIFFERENT:
                    found[f"{module}.{name}"] = "; ".join(wrong)
        return found

    def canonical(self, symbol):
        """The name at which an object is described that goes by several."""
        module, name = symbol.rsplit(".", 1)
        return self.wanted.get(module, {}).get(name, {}).get("same", symbol)

    def rows(self, jobs):
        """[(symbol, there, test, remark)], an object once: under the first of its names.

        jobs: the reports of one job for each framework that the cases run with.
        """
        tested, wrong = {}, {}
        for reports in jobs:
            wrong.update(self.differences(reports[0]["here"]))
            for symbol, cases in passed(reports).items():
                tested.setdefault(self.canonical(symbol), []).extend(cases)
        shown = set()
        table = []
        for module in (*self.packages, *sorted(self.wanted.keys() - set(self.packages))):
            for name, what in self.wanted[module].items():
                symbol = f"{module}.{name}"
                root = what.get("same", symbol)
                if root in shown:
                    continue
                shown.add(root)
                text = wrong.get(symbol, "")
                if {"value", "module"} & what.keys() and not text:
                    test = "compared as data"
                else:
                    test = some_of(tested.get(root, []))
                there = "no" if text.startswith("missing") else "differs" if text else "yes"
                table.append((symbol, there, test, text or DIFFERENT.get(symbol, "")))
        for symbol, other in jobs[0][0]["extra"].items():
            root = self.canonical(other) if other else symbol.rsplit(".", 1)[1]
            if root not in shown:
                shown.add(root)
                table.append((symbol, "yes", some_of(tested.get(other or symbol, [])), "not in Horovod"))
        return table

    def markdown(self, table):
        lines = [f"| {self.heading} | there | test | remark |", "|---|---|---|---|"]
        for symbol, there, test, remark in table:
            lines.append(f"| `{symbol}` | {there} | {test} | {remark} |")
        return "\n".join(lines)


TORCH = Suite("symbols/main.py", RECORD, ["horovod.torch"], "name")
TENSORFLOW = Suite(
    "symbols_tf/main.py",
    TENSORFLOW_RECORD,
    ["horovod.tensorflow", "horovod.tensorflow.keras", "horovod.keras"],
    "name, for TensorFlow and Keras",
)
