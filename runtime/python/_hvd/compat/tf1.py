# SPDX-License-Identifier: Apache-2.0
"""``python -m horovod.compat.tf1 SCRIPT [ARGUMENT...]``: a program for TensorFlow 1 on TensorFlow 2.

    python -m horovod.compat.tf1 train.py --steps 100
        |  program.py: __main__, sys.argv and sys.path[0] of the program
        v
    train.py, and the program's other modules     libraries: tensorflow, keras, horovod ...
        |  import tensorflow                          |  import tensorflow
        v  imports.py: their own __import__           v
    names.py: tensorflow.compat.v1                tensorflow, as always

The program's tracebacks are without our lines: sys.excepthook leaves them out (program.py), and so does
TensorFlow where it shows in which lines an operation was made (names.py).
"""

from _hvd.compat import imports, keras_2, program

_NAME = "horovod.compat.tf1"


def main(arguments=None):
    """Runs the program that the command line names, and returns when it has ended."""
    command = program.Command(_NAME, arguments)
    keras_2.choose()
    command.run(imports.install())
