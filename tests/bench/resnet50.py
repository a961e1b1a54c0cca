# SPDX-License-Identifier: Apache-2.0
"""The 161 gradients of ResNet-50 (25,557,032 elements), in the order in which backward yields them."""


def forward():
    """Shapes of the parameters as the network is written down, first layer first."""

    def conv(out, into, k):
        return [(out, into, k, k)]

    def norm(channels):
        return [(channels,), (channels,)]

    shapes = conv(64, 3, 7) + norm(64)
    into = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shapes += conv(width, into, 1) + norm(width)
            shapes += conv(width, width, 3) + norm(width)
            shapes += conv(4 * width, width, 1) + norm(4 * width)
            if block == 0:  # the way around the block changes its width too
                shapes += conv(4 * width, into, 1) + norm(4 * width)
            into = 4 * width
    return [*shapes, (1000, into), (1000,)]


def gradients():
    return forward()[::-1]
