"""IDX files, the format of MNIST and its relatives.

A file has two zero bytes, a dtype code, the number of dimensions, each dimension as a big-endian 32-bit
integer, and the items, big-endian, with the last dimension varying fastest.
"""

import gzip
import io
import lzma
import math
import os
import struct
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ftnn.errors import DataError

_DTYPES = {
    0x08: np.dtype(">u1"),
    0x09: np.dtype(">i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_MAX_DIMENSIONS = 64  # of a NumPy array
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_CHUNK = 1 << 20  # bytes read at once, since a header may promise far more than the file holds
_LISTED = 20  # files listed in an error


class NamedArray(NamedTuple):
    """An array, and the name of its file for errors."""

    name: str
    array: NDArray[Any]


@dataclass(frozen=True, eq=False)  # eq=False: == of arrays is an array
class Images:
    """Images with labels, for training and testing. Pixels 0 to 255 become 0.0 to 1.0."""

    train_images: NDArray[np.float32]
    """(train, height · width), in [0, 1]."""
    train_labels: NDArray[np.int64]
    """(train,)."""
    test_images: NDArray[np.float32]
    """(test, height · width), in [0, 1]."""
    test_labels: NDArray[np.int64]
    """(test,)."""


def read_idx(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array in the IDX file at `path`, plain or compressed by gzip or xz, in its shape and dtype.

    Reads all dtypes of the format: uint8, int8, int16, int32, float32 and float64, in native byte order.
    Raises `DataError` if the file is missing or damaged.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            start = file.read(len(_XZ))
            file.seek(0)
            # The content decides, not the name: IDX begins with zeros, gzip and xz do not.
            if start.startswith(_GZIP):
                return parse_idx(gzip.GzipFile(fileobj=file), name)
            return parse_idx(lzma.LZMAFile(file, format=lzma.FORMAT_XZ) if start == _XZ else file, name)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{name}: cannot be read: {error}") from error


def parse_idx(stream: io.BufferedIOBase, name: str) -> NDArray[Any]:
    """The array in an IDX stream, which errors call `name`.

    Reads one byte more than the header promises, but no further: this detects trailing bytes, and makes gzip
    and xz verify their checksums.
    """
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise DataError(
            f"{name}: not an IDX file: expected 00 00, a dtype code and the number of dimensions "
            f"(or a gzip or xz file of that), found {magic.hex(' ') or 'an empty file'}"
        )
    code, dimensions = magic[2], magic[3]
    if code not in _DTYPES:
        codes = ", ".join(f"{idx_code:02x} ({dtype.name})" for idx_code, dtype in _DTYPES.items())
        raise DataError(f"{name}: unknown dtype code {code:02x}; the IDX codes are {codes}")
    if dimensions > _MAX_DIMENSIONS:
        raise DataError(f"{name}: {dimensions} dimensions; the limit is {_MAX_DIMENSIONS}")
    header = stream.read(4 * dimensions)
    if len(header) < 4 * dimensions:
        raise DataError(
            f"{name}: truncated: {dimensions} dimensions take {4 * dimensions} bytes, found {len(header)}"
        )
    shape: tuple[int, ...] = struct.unpack(f">{dimensions}I", header)
    dtype = _DTYPES[code]
    # NumPy multiplies the nonzero dimensions, even if a zero makes the array empty.
    if math.prod(size or 1 for size in shape) * dtype.itemsize > sys.maxsize:
        raise DataError(f"{name}: the header promises an array of shape {shape}, larger than any memory")
    expected = math.prod(shape) * dtype.itemsize

    data = bytearray()
    while chunk := stream.read(min(_CHUNK, expected + 1 - len(data))):
        data += chunk
    if len(data) != expected:
        is_short = len(data) < expected
        raise DataError(
            f"{name}: {'truncated' if is_short else 'trailing bytes'}: the header promises {dtype.name} of "
            f"shape {shape}, {expected} bytes, and {f'only {len(data)}' if is_short else 'more'} follow"
        )
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def idx_directory(path: str | os.PathLike[str]) -> Images:
    """The four IDX files of MNIST, or of a relative such as Fashion-MNIST, in the directory `path`.

    They are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
    `t10k-labels-idx1-ubyte`, or the same with `.idx`, optionally with `.gz` or `.xz`. A plain file takes
    precedence over `.gz`, and `.gz` over `.xz`. Images may have any height and width. Raises `DataError` if a
    file is missing, damaged, or does not match the others.
    """
    directory = Path(path)
    try:
        files = sorted(entry.name for entry in directory.iterdir())
    except OSError as error:
        raise DataError(f"{directory}: expected a directory of IDX files: {error}") from error

    def read(name: str) -> NamedArray:
        candidates = [
            stem + suffix for suffix in ("", ".gz", ".xz") for stem in (name, name.replace("-idx", ".idx"))
        ]
        for candidate in candidates:
            if candidate in files:
                file = directory / candidate
                return NamedArray(str(file), read_idx(file))
        listed = ", ".join(files[:_LISTED]) or "nothing"
        more = f" and {len(files) - _LISTED} more" if len(files) > _LISTED else ""
        raise DataError(f"{directory}: expected {' or '.join(candidates)}; found {listed}{more}")

    return gather(read)


def gather(read: Callable[[str], NamedArray]) -> Images:
    """`Images` from the four files; `read` maps the name of a file to its array."""
    # In parallel, since decompression releases the GIL.
    with ThreadPoolExecutor(len(_NAMES)) as pool:
        train, train_labels, test, test_labels = pool.map(read, _NAMES)
    for images, labels in ((train, train_labels), (test, test_labels)):
        _check(images, "images, uint8 of shape (count, height, width)", dimensions=3)
        _check(labels, "labels, uint8 of shape (count,)", dimensions=1)
        if len(images.array) != len(labels.array):
            raise DataError(
                f"{images.name} holds {len(images.array)} images, "
                f"but {labels.name} holds {len(labels.array)} labels"
            )
    if train.array.shape[1:] != test.array.shape[1:]:
        raise DataError(
            "images of different sizes: (height, width) is "
            f"{train.array.shape[1:]} in {train.name}, but {test.array.shape[1:]} in {test.name}"
        )
    return Images(
        train_images=_pixels(train.array),
        train_labels=train_labels.array.astype(np.int64),
        test_images=_pixels(test.array),
        test_labels=test_labels.array.astype(np.int64),
    )


def _check(file: NamedArray, expected: str, dimensions: int) -> None:
    name, array = file
    if array.dtype != np.uint8 or array.ndim != dimensions or array.size == 0:
        raise DataError(f"{name}: expected {expected}, found {array.dtype.name} of shape {array.shape}")


def _pixels(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(count, height, width) → (count, height · width), and 0 to 255 → [0, 1]."""
    count, height, width = images.shape
    return np.divide(images.reshape(count, height * width), np.float32(255), dtype=np.float32)
