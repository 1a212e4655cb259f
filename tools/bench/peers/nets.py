# SPDX-License-Identifier: Apache-2.0
"""The networks that copse and its peers are compared on."""

NETS = {
    # image shape; groups of 3 x 3 convolutions, each followed by 2 x 2 max pooling; hidden units; whether
    # convolutions are padded to their input's size and have batch normalisation before their relu
    "cifar32": ((32, 32, 3), ((32,),), 128, False),
    "cifar64": ((32, 32, 3), ((64,),), 128, False),
    "vgg": ((32, 32, 3), ((32, 32), (64, 64), (128, 128)), 128, True),
    "mlp": ((28, 28, 1), (), 128, False),
}


def features(net):
    """What the first dense layer sees of an image."""
    (height, width, channels), groups, _, padded = NETS[net]
    for group in groups:
        lost = 0 if padded else 2 * len(group)
        height, width, channels = (height - lost) // 2, (width - lost) // 2, group[-1]
    return height * width * channels
