# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 the PBox authors
"""Images that are noise, in the files of Fashion-MNIST, where the data set is not installed: noise_images.py FOLDER."""

import gzip
import os
import random
import sys

N = 60000
os.makedirs(sys.argv[1], exist_ok=True)
draw = random.Random(1)
for name, head, body in (("train-images-idx3-ubyte.gz", bytes(16), draw.randbytes(N * 28 * 28)),
                         ("train-labels-idx1-ubyte.gz", bytes(8), bytes(draw.randrange(10) for _ in range(N)))):
    with gzip.open(os.path.join(sys.argv[1], name), "wb", compresslevel=1) as f:
        f.write(head + body)
