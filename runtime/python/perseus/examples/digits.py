# SPDX-License-Identifier: Apache-2.0
"""Images of digits for the examples of this folder, drawn here: no download, nothing but numpy."""

from types import SimpleNamespace

import numpy as np

FONT = """
 .###. ..#.. .###. ##### ...#. ##### ..##. ##### .###. .###.
 #...# .##.. #...# ...#. ..##. #.... .#... ....# #...# #...#
 #..## ..#.. ....# ..#.. .#.#. ####. #.... ...#. #...# #...#
 #.#.# ..#.. ...#. ...#. #..#. ....# ####. ..#.. .###. .####
 ##..# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....#
 #...# ..#.. .#... #...# ...#. #...# #...# .#... #...# ...#.
 .###. .###. ##### .###. ...#. .###. .###. .#... .###. .##..
"""


def load_digits():
    """1,797 gray images of 8 x 8 pixels, the same at each call, as scikit-learn's load_digits() has them.

    Returns images (float64 (1797, 8, 8), 0 is white and 16 black) and target (int64 (1797,), 0 to 9).
    The digits have different places and shades, and noise.
    """
    font = [[list(glyph) for glyph in line.split()] for line in FONT.strip().splitlines()]
    font = np.array(font) == "#"  # (7 rows, 10 digits, 5 columns)
    random = np.random.RandomState(0)
    target = random.randint(0, 10, 1797)
    images = random.normal(0, 2.5, (len(target), 8, 8))
    for image, digit in zip(images, target):
        y, x = random.randint(0, 2), random.randint(0, 4)
        image[y : y + 7, x : x + 5] += random.uniform(8, 16) * font[:, digit]
    return SimpleNamespace(images=images.clip(0, 16).round(), target=target)
