# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/pillow: image files and, in expected.npz, the pixels that Pillow decodes from
them: NAME-rgb and NAME-grey of each, and some scaled ones.
Run in this folder: python3 make_pillow.py
"""
import numpy as np
from PIL import Image, ImageOps

y, x = np.mgrid[0:13, 0:17]
rgb = np.stack([x * 15, y * 19, (x * 7 + y * 11) % 256], -1).astype(np.uint8)
alpha = ((x + y) * 8).astype(np.uint8)
base = Image.fromarray(rgb)
images = {
    "rgb.png": base,
    "rgba.png": Image.fromarray(np.dstack([rgb, alpha])),
    "grey.png": base.convert("L"),
    "grey-alpha.png": base.convert("RGBA").convert("LA"),
    "palette.png": base.quantize(40),
    "palette-small.png": base.quantize(4),
    "bits.png": base.convert("1"),
    "grey16.png": Image.fromarray((x * 3000 + y * 500).astype(np.uint16)),
    "baseline.jpg": base,
    "subsampled.jpg": base,
    "progressive.jpg": base,
    "grey.jpg": base.convert("L"),
    "cmyk.jpg": base.convert("CMYK"),
}
options = {
    "baseline.jpg": dict(quality=90, subsampling=0),
    "subsampled.jpg": dict(quality=80, subsampling=2),
    "progressive.jpg": dict(quality=90, progressive=True),
    "palette-small.png": dict(bits=2),
}
for k in range(1, 9):
    exif = Image.Exif()
    exif[0x0112] = k
    images[f"turned-{k}.jpg"] = base
    options[f"turned-{k}.jpg"] = dict(quality=95, subsampling=0, exif=exif)

expected = {}
for name, image in images.items():
    path = "pillow/" + name
    image.save(path, **options.get(name, {}))
    read = ImageOps.exif_transpose(Image.open(path))
    if name == "grey16.png":
        expected[name + "-wide"] = np.array(read).astype(np.uint16)
        continue
    if name == "cmyk.jpg":
        continue
    expected[name + "-rgb"] = np.array(read.convert("RGB"))
    expected[name + "-grey"] = np.array(read.convert("L"))
for height, width in ((5, 6), (13, 8), (26, 34), (1, 1), (7, 40)):
    expected[f"scaled-{height}-{width}"] = np.array(
        base.resize((width, height), Image.Resampling.BILINEAR))
expected["cropped-6-6"] = np.array(
    base.resize((6, 6), Image.Resampling.BILINEAR, box=(2, 0, 15, 13)))
np.savez_compressed("pillow/expected.npz", **expected)
