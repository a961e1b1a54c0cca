#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which mutants a source has, and that each is found again after other lines have moved."""

import sys
import unittest

import run
import sites

C = """/* if (a < b) in a comment */
#include <x.h>

static int shared_value;

static int pair_max(int a, int b,
                    const char *name)
{
    int best = a; /* a > b */

    if (a < b && name[0] != '<') {
        best = b;
        log_info("a > b", 3);
    }
    if (!best)
        return -EINVAL;
    pair_note(best);
    return best;
}

int other_max(void)
{
    return 0;
}
"""
PY = '''"""A module."""


class Box:
    def put(self, item):
        """Not: a call()."""
        if item is None or self.n >= 4:
            raise ValueError("n >= 4")
        self.items.append(item)
        return self.n == 1


def outer():
    return None
'''


def changes(file: str, text: str) -> list[tuple[str, str, str, str]]:
    return sorted((m.function, m.kind, m.old, m.new) for m in sites.mutants_of(file, text))


class Sites(unittest.TestCase):
    def test_of_c(self) -> None:
        self.assertEqual(
            changes("a.c", C),
            sorted([
                ("pair_max", "compare", "<", "<="),
                ("pair_max", "compare", "!=", "=="),
                ("pair_max", "logic", "&&", "||"),
                ("pair_max", "constant", "0", "1"),
                ("pair_max", "constant", "3", "4"),
                ("pair_max", "negate", "a < b && name[0] != '<'", "!(a < b && name[0] != '<')"),
                ("pair_max", "negate", "!best", "!(!best)"),
                ("pair_max", "drop", "best = b;", "(void)0;"),
                ("pair_max", "drop", 'log_info("a > b", 3);', "(void)0;"),
                ("pair_max", "drop", "pair_note(best);", "(void)0;"),
                ("pair_max", "return", "-EINVAL", "0"),
                ("pair_max", "return", "best", "0"),
                ("other_max", "constant", "0", "1"),
                ("other_max", "return", "0", "1"),
            ]),
        )  # fmt: skip

    def test_of_python(self) -> None:
        self.assertEqual(
            changes("a.py", PY),
            sorted([
                ("Box.put", "compare", "is", "is not"),
                ("Box.put", "compare", ">=", ">"),
                ("Box.put", "compare", "==", "!="),
                ("Box.put", "constant", "4", "5"),
                ("Box.put", "constant", "1", "2"),
                ("Box.put", "logic", "or", "and"),
                ("Box.put", "negate", "item is None or self.n >= 4", "not (item is None or self.n >= 4)"),
                ("Box.put", "drop", "self.items.append(item)", "pass"),
                ("Box.put", "return", "return self.n == 1", "return None"),
            ]),
        )  # fmt: skip

    def test_each_is_applied_at_its_place_alone(self) -> None:
        for file, text in (("a.c", C), ("a.py", PY)):
            results = [sites.apply(m, text) for m in sites.mutants_of(file, text)]
            self.assertNotIn(None, results)
            self.assertNotIn(text, results)
            self.assertEqual(
                len(set(results)), len(results) - (file == "a.c")
            )  # 0 -> 1 in other_max is two
            for result in results:
                old, new = text.splitlines(), result.splitlines()
                self.assertEqual(sum(a != b for a, b in zip(old, new, strict=True)), 1)

    def test_it_is_found_again_when_lines_have_moved(self) -> None:
        moved = "/* new */\n\n" + C.replace("    if (!best)", "    pair_note(a);\n    if (!best)")
        for mutant in sites.mutants_of("a.c", C):
            self.assertIsNotNone(sites.apply(mutant, moved), mutant)
        gone = C.replace("a < b", "b > a")
        lost = [m for m in sites.mutants_of("a.c", C) if sites.apply(m, gone) is None]
        self.assertEqual({m.line for m in lost}, {"if (a < b && name[0] != '<') {"})

    def test_it_is_found_in_a_renamed_function(self) -> None:
        renamed = C.replace("pair_max", "pair_find_max").replace("other_max", "pair_max_of")
        lost = [m.line for m in sites.mutants_of("a.c", C) if sites.apply(m, renamed) is None]
        self.assertEqual(lost, [])
        doubled = renamed + renamed.replace("pair_find_max", "pair_find_min")
        found = [m.line for m in sites.mutants_of("a.c", C) if sites.apply(m, doubled) is not None]
        self.assertEqual(found, [])

    def test_equal_lines_are_apart(self) -> None:
        text = "int f(void)\n{\n    step();\n    step();\n}\n"
        first, second = (sites.apply(m, text).splitlines() for m in sites.mutants_of("a.c", text))
        self.assertEqual((first[2].strip(), second[3].strip()), ("(void)0;", "(void)0;"))


class Row(unittest.TestCase):
    """The tests that run when no unit program notices a mutant."""

    def test_a_python_file_has_the_tests_of_its_framework(self) -> None:
        for file, names in (
            ("_hvd/torch/optimizer.py", "torch"),
            ("_hvd/keras/optimizer2.py", "keras"),
            ("ext/ending.c", run.PYTHON_ELSE),
        ):
            self.assertEqual(run.row_of(f"runtime/python/{file}"), run.PYTHON.format(names=names))


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=0).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed, 0 skipped")
    sys.exit(1 if bad else 0)
