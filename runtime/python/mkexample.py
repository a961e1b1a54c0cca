# SPDX-License-Identifier: Apache-2.0
"""mkexample.py EXAMPLES PATH/NAME.py...: writes examples for perseus from those for Horovod, so that
there is one text of each. NAME: a key of NAMES; EXAMPLES: the folder runtime/examples.

They import perseus, are started by perseusrun, and take their data from perseus/examples/digits.py, so that
they need no download and no scikit-learn.
"""

import os
import re
import sys

NAMES = {  # the names are those of AIACC's documents and of Horovod's own examples
    "keras_mnist": "keras_digits",
    "pytorch_mnist": "train_digits",
    "tensorflow2_mnist": "tape_digits",
    "tensorflow_keras_mnist": "keras_digits",
    "tensorflow_mnist": "tf1_digits",
    "tensorflow_mnist_estimator": "estimator_digits",
}
RULES = (
    (r"scikit-learn's handwritten digits", "drawn digits"),
    (r",? and scikit-learn\b", ""),
    (r"\bsklearn\.datasets\b", "digits"),
    (r"\bhorovod\.(torch|tensorflow|keras)\b", r"perseus.\1.horovod"),
    (r"\bhorovodrun -np 2 python3\b", "perseusrun -np 2 -H localhost:2 python"),
)
OF_TENSORFLOW = (  # keras_digits with TensorFlow's Keras
    (r"(?m)^.*KERAS_BACKEND=.*\n", ""),
    (r"Keras 3 with .* Keras 2\b", "TensorFlow 2.12 or later"),
    (r"(?m)^Scripts with .*\n", ""),
    (r"\bperseus\.keras\.horovod\b", "perseus.tensorflow.horovod.keras"),
    (r"(?m)^import keras$", "from tensorflow import keras"),
)
LEFT = r"scikit|sklearn|(?<![.\w])horovod(run)?\b"


def example(text, source, name):
    """The text of the example, made of the text of its source. SystemExit if Horovod is left in it."""
    rules = [*RULES, (rf"\b{source}\b", name)]
    if name == "tensorflow_keras_mnist":
        rules += OF_TENSORFLOW
    for pattern, new in rules:
        text = re.sub(pattern, new, text)
    left = re.search(LEFT, text)
    if left:
        sys.exit(
            f"mkexample: {source}.py has {left[0]!r}, for which there is no rule; add one for {name}.py"
        )
    return text


def main():
    folder, *targets = sys.argv[1:]
    for target in targets:
        name = os.path.splitext(os.path.basename(target))[0]
        source = NAMES[name]
        with open(os.path.join(folder, f"{source}.py"), encoding="utf-8") as f:
            text = example(f.read(), source, name)
        with open(f"{target}.new", "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(f"{target}.new", target)


if __name__ == "__main__":
    main()
