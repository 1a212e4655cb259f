# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/tensorflow: TFRecord files of tf.train.Example, for the readers' tests.

Record i of 7 has
  image   a PNG of 4 x 5 RGB pixels, value (i * 60 + k) * 7 % 256 in row-major order
  jpeg    a JPEG of 16 x 16 RGB pixels, all of value i * 30
  raw     3 little-endian float32: i + 0.25, i + 0.5, -i
  floats  6 floats: i * 6 + k + 0.5
  ints    3 int64: i - 3, 2**31 - 1 - i, -(2**31) + i
  big     1 int64: 2**40 + i
  label   1 int64: i % 4
  target  2 floats: i / 2, -i / 4
unpacked.tfrecord holds the same floats and ints, but as unpacked lists, which is what old writers
made: the bytes are assembled by hand, as today's protobuf does not write them.
Run in this folder: python3 make_tensorflow.py
"""
import struct

import numpy as np
import tensorflow as tf


def feature(value):
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    if isinstance(value[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value))


def record(i):
    pixels = ((i * 60 + np.arange(60)) * 7 % 256).astype(np.uint8).reshape(4, 5, 3)
    flat = np.full((16, 16, 3), i * 30, np.uint8)
    example = tf.train.Example(features=tf.train.Features(feature={
        "image": feature(tf.io.encode_png(pixels).numpy()),
        "jpeg": feature(tf.io.encode_jpeg(flat, quality=100).numpy()),
        "raw": feature(np.array([i + 0.25, i + 0.5, -i], "<f4").tobytes()),
        "floats": feature([i * 6 + k + 0.5 for k in range(6)]),
        "ints": feature([i - 3, 2**31 - 1 - i, -(2**31) + i]),
        "big": feature([2**40 + i]),
        "label": feature([i % 4]),
        "target": feature([i / 2, -i / 4]),
    }))
    return example.SerializeToString()


def varint(n):
    n &= 2**64 - 1
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def unpacked(i):
    floats = b"".join(b"\x0d" + struct.pack("<f", i * 6 + k + 0.5) for k in range(6))
    ints = b"".join(b"\x08" + varint(v) for v in (i - 3, 2**31 - 1 - i, -(2**31) + i))
    entries = field(1, field(1, b"floats") + field(2, field(2, floats)))
    entries += field(1, field(1, b"ints") + field(2, field(3, ints)))
    return field(1, entries)


for name, options, make in (("plain", None, record), ("gzip", "GZIP", record),
                            ("zlib", "ZLIB", record), ("unpacked", None, unpacked)):
    with tf.io.TFRecordWriter(f"tensorflow/{name}.tfrecord", options) as writer:
        for i in range(7):
            writer.write(make(i))
