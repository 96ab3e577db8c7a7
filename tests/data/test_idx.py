import gzip
import io
import lzma
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ftnn.data import idx_directory, read_idx
from ftnn.data._idx import parse_idx
from ftnn.errors import DataError

CODES = {"uint8": 0x08, "int8": 0x09, "int16": 0x0B, "int32": 0x0C, "float32": 0x0D, "float64": 0x0E}
PACKERS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def encode(array: np.ndarray[Any, Any]) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, CODES[array.dtype.name], array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


class CountingStream(io.BytesIO):
    """Counts the bytes that are read from it."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(size)
        self.count += len(piece)
        return piece


# ---- one file


def test_a_handwritten_idx_file_is_read(tmp_path: Path):
    by_hand = bytes.fromhex("00 00 0b 02  00 00 00 02  00 00 00 03  0001 0002 0003 fffe 7fff 8000")
    array = read_idx(write(tmp_path / "x", by_hand))
    assert array.dtype == np.int16
    assert array.tolist() == [[1, 2, 3], [-2, 32767, -32768]]


@given(
    st.sampled_from(sorted(CODES)).flatmap(
        lambda name: hnp.arrays(name, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    )
)
def test_every_dtype_and_shape_round_trips(array: np.ndarray[Any, Any]):
    back = parse_idx(io.BytesIO(encode(array)), "memory")
    assert back.dtype == array.dtype
    assert back.dtype.isnative
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("suffix", PACKERS)
def test_compressed_idx_files_are_read(tmp_path: Path, suffix: str):
    array = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    assert np.array_equal(read_idx(write(tmp_path / f"x{suffix}", PACKERS[suffix](encode(array)))), array)


def test_compression_is_detected_from_the_content_not_the_name(tmp_path: Path):
    array = np.arange(5, dtype=np.uint8)
    assert np.array_equal(read_idx(write(tmp_path / "x.gz", encode(array))), array)
    assert np.array_equal(read_idx(str(write(tmp_path / "y", lzma.compress(encode(array))))), array)


def test_the_array_is_writable(tmp_path: Path):
    array = read_idx(write(tmp_path / "x", encode(np.zeros(3, np.uint8))))
    array[0] = 1
    assert array.tolist() == [1, 0, 0]


GOOD = encode(np.arange(12, dtype=np.uint8).reshape(3, 4))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "not an IDX file.*found an empty file"),
        (b"\0\0\x08", "not an IDX file.*found 00 00 08"),
        (b"\x89PNG" + GOOD, "not an IDX file.*found 89 50 4e 47"),
        (b"\0\0\x0a\x01" + GOOD, r"unknown dtype code 0a; .*08 \(uint8\), .*0e \(float64\)"),
        (b"\0\0\x08\x41" + bytes(4 * 65), "65 dimensions; the limit is 64"),
        (GOOD[:10], "truncated: 2 dimensions take 8 bytes, found 6"),
        (GOOD[:-1], r"truncated: .*uint8 of shape \(3, 4\), 12 bytes, and only 11 follow"),
        (GOOD[:12], "12 bytes, and only 0 follow"),
        (GOOD + b"\0", "trailing bytes: .*12 bytes, and more follow"),
        (b"\0\0\x0e\x03" + b"\xff" * 12, "larger than any memory"),
        (b"\0\0\x0e\x04" + bytes(4) + b"\xff" * 12, "larger than any memory"),
    ],
)
@pytest.mark.parametrize("suffix", PACKERS)
def test_an_invalid_idx_file_is_refused(tmp_path: Path, suffix: str, content: bytes, expected: str):
    file = write(tmp_path / f"x-idx{suffix}", PACKERS[suffix](content))
    with pytest.raises(DataError, match=expected) as caught:
        read_idx(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "only the start"])
def test_a_damaged_compressed_file_is_refused(tmp_path: Path, suffix: str, damage: str):
    rng = np.random.default_rng(0)
    packed = bytearray(PACKERS[suffix](encode(rng.integers(0, 256, 5000, np.uint8))))
    if damage == "cut":
        del packed[-20:]
    elif damage == "flipped":
        packed[len(packed) // 2] ^= 0xFF  # in incompressible data, so that only the checksum detects it
    else:
        del packed[6:]
    file = write(tmp_path / f"x{suffix}", bytes(packed))
    with pytest.raises(DataError, match="cannot be read") as caught:
        read_idx(file)
    assert str(file) in str(caught.value)


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match="nowhere: cannot be read"):
        read_idx(tmp_path / "nowhere")
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(tmp_path)


def test_at_most_one_byte_beyond_the_promised_size_is_read():
    stream = CountingStream(GOOD + bytes(10_000_000))
    with pytest.raises(DataError, match="trailing bytes"):
        parse_idx(stream, "memory")
    assert stream.count == len(GOOD) + 1


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_decompression_bomb_is_not_decompressed(tmp_path: Path, suffix: str):
    bomb = write(tmp_path / f"x{suffix}", PACKERS[suffix](GOOD + bytes(100_000_000)))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="trailing bytes"):
            read_idx(bomb)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_header_that_promises_a_terabyte_takes_no_memory(tmp_path: Path):
    file = write(tmp_path / "x", b"\0\0\x08\x02" + b"\0\x10\0\0" * 2 + bytes(100))  # a terabyte
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="only 100 follow"):
            read_idx(file)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


# ---- a directory

Arrays = dict[str, np.ndarray[Any, Any]]
STYLES = [(dot, suffix) for dot in "-." for suffix in PACKERS]


def small() -> Arrays:
    rng = np.random.default_rng(1)
    return {
        "train-images-idx3-ubyte": rng.integers(0, 256, (7, 3, 5), np.uint8),
        "train-labels-idx1-ubyte": rng.integers(0, 10, 7, np.uint8),
        "t10k-images-idx3-ubyte": rng.integers(0, 256, (4, 3, 5), np.uint8),
        "t10k-labels-idx1-ubyte": rng.integers(0, 10, 4, np.uint8),
    }


def fill(directory: Path, arrays: Arrays, dot: str = "-", suffix: str = "") -> None:
    for name, array in arrays.items():
        write(directory / (name.replace("-idx", f"{dot}idx") + suffix), PACKERS[suffix](encode(array)))


@pytest.mark.parametrize(("dot", "suffix"), STYLES)
def test_a_directory_is_read_with_every_naming_style(tmp_path: Path, dot: str, suffix: str):
    arrays = small()
    fill(tmp_path, arrays, dot, suffix)
    images = idx_directory(str(tmp_path))
    expected = (arrays["train-images-idx3-ubyte"].reshape(7, 15) / 255).astype(np.float32)
    assert images.train_images.dtype == np.float32
    assert np.array_equal(images.train_images, expected)
    assert images.train_labels.dtype == np.int64
    assert np.array_equal(images.train_labels, arrays["train-labels-idx1-ubyte"])
    assert images.test_images.shape == (4, 15)
    assert np.array_equal(images.test_labels, arrays["t10k-labels-idx1-ubyte"])


def test_a_plain_file_takes_precedence_over_a_compressed_one(tmp_path: Path):
    fill(tmp_path, small())
    write(tmp_path / "train-labels-idx1-ubyte.gz", b"nonsense")
    assert len(idx_directory(tmp_path).train_labels) == 7


def test_the_error_for_a_missing_file_lists_the_existing_ones(tmp_path: Path):
    fill(tmp_path, small(), suffix=".gz")
    (tmp_path / "t10k-labels-idx1-ubyte.gz").rename(tmp_path / "labels.gz")
    with pytest.raises(DataError) as caught:
        idx_directory(tmp_path)
    message = str(caught.value)
    for name in ("t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte", "t10k-labels-idx1-ubyte.xz"):
        assert name in message
    assert "found labels.gz, t10k-images-idx3-ubyte.gz, train-images" in message
    assert str(tmp_path) in message


def test_the_error_lists_only_some_of_many_files(tmp_path: Path):
    for number in range(25):
        write(tmp_path / f"f{number:02}", b"")
    with pytest.raises(DataError, match="f19 and 5 more"):
        idx_directory(tmp_path)


def test_an_empty_directory_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="found nothing"):
        idx_directory(tmp_path)


def test_a_path_that_is_not_a_directory_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="nowhere: expected a directory of IDX files"):
        idx_directory(tmp_path / "nowhere")
    with pytest.raises(DataError, match="expected a directory of IDX files"):
        idx_directory(write(tmp_path / "file", GOOD))


@pytest.mark.parametrize("part", ["train", "t10k"])
def test_different_numbers_of_images_and_labels_are_refused(tmp_path: Path, part: str):
    arrays = small()
    labels = f"{part}-labels-idx1-ubyte"
    arrays[labels] = arrays[labels][1:]
    fill(tmp_path, arrays)
    with pytest.raises(DataError, match=rf"{part}-images\S+ holds . images, but \S+{labels} holds . labels"):
        idx_directory(tmp_path)


def test_images_of_different_sizes_are_refused(tmp_path: Path):
    arrays = small()
    arrays["t10k-images-idx3-ubyte"] = np.zeros((4, 5, 3), np.uint8)  # the same number of pixels
    fill(tmp_path, arrays)
    with pytest.raises(DataError, match=r"\(3, 5\) in \S+train-images.*\(5, 3\) in \S+t10k-images"):
        idx_directory(tmp_path)


@pytest.mark.parametrize(
    ("name", "array", "expected"),
    [
        (
            "train-images-idx3-ubyte",
            np.zeros((7, 15), np.uint8),
            r"expected images.*uint8 of shape \(7, 15\)",
        ),
        ("train-images-idx3-ubyte", np.zeros((7, 3, 5), np.float32), "expected images.*found float32"),
        ("t10k-images-idx3-ubyte", np.zeros((0, 3, 5), np.uint8), r"expected images.*shape \(0, 3, 5\)"),
        ("t10k-labels-idx1-ubyte", np.zeros((4, 10), np.uint8), r"expected labels.*shape \(4, 10\)"),
        ("train-labels-idx1-ubyte", np.zeros(7, np.int32), "expected labels.*found int32"),
    ],
)
def test_an_array_of_the_wrong_dtype_or_shape_is_refused(
    tmp_path: Path, name: str, array: np.ndarray[Any, Any], expected: str
):
    fill(tmp_path, small() | {name: array})
    with pytest.raises(DataError, match=expected) as caught:
        idx_directory(tmp_path)
    assert name in str(caught.value)


def test_the_error_names_a_damaged_file_in_a_directory(tmp_path: Path):
    fill(tmp_path, small())
    file = tmp_path / "t10k-images-idx3-ubyte"
    write(file, file.read_bytes()[:-1])
    with pytest.raises(DataError, match="t10k-images-idx3-ubyte: truncated"):
        idx_directory(tmp_path)
