# SPDX-License-Identifier: Apache-2.0
"""Prints what a program sees of itself, then ends as its first argument says. Without TensorFlow."""

import sys

import beside

print(__name__, __file__, __doc__, __package__, sys.argv, sys.path[0])
print(
    sys.modules["__main__"].__dict__ is globals(), beside.__file__, len.__name__, __spec__ and __spec__.name
)


def fail():
    try:
        beside.fail()
    except ValueError as e:
        raise RuntimeError("because of it") from e


if __name__ == "__main__":
    how = sys.argv[1]
    if how == "raise":
        fail()
    elif how == "import":
        import broken  # noqa: F401
    elif how == "exit":
        sys.exit(3)
    elif how == "say":
        sys.exit("said")
