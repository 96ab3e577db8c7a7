import lzma
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from ftnn.data import Images, mnist
from ftnn.data._mnist import load
from ftnn.errors import DataError

EMBEDDED = Path(str(files("ftnn.data"))) / "_files" / "mnist"
SMALL = "t10k-labels-idx1-ubyte"


@pytest.fixture(scope="module")
def images() -> Images:
    return mnist()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the embedded files, to damage."""
    return Path(shutil.copytree(EMBEDDED, tmp_path / "mnist"))


def test_mnist_has_the_documented_shapes_and_dtypes(images: Images):
    assert images.train_images.shape == (60000, 784)
    assert images.train_labels.shape == (60000,)
    assert images.test_images.shape == (10000, 784)
    assert images.test_labels.shape == (10000,)
    assert images.train_images.dtype == images.test_images.dtype == np.float32
    assert images.train_labels.dtype == images.test_labels.dtype == np.int64


def test_the_labels_are_those_of_mnist(images: Images):
    assert images.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert images.test_labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]  # of each digit
    assert np.bincount(images.train_labels).tolist() == counts


def test_the_pixels_are_those_of_mnist(images: Images):
    assert images.train_images.min() == 0
    assert images.train_images.max() == 1
    # The usual mean and deviation for normalising MNIST, and the sparsity that the kernels rely on.
    assert images.train_images.mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)
    assert images.train_images.std(dtype=np.float64) == pytest.approx(0.3081, abs=5e-5)
    assert np.count_nonzero(images.train_images) / images.train_images.size == pytest.approx(0.19, abs=0.005)


def test_a_pixel_is_its_byte_divided_by_255(images: Images):
    packed = lzma.decompress((EMBEDDED / "t10k-images-idx3-ubyte.xz").read_bytes())
    bytes_of_first = np.frombuffer(packed[16 : 16 + 784], np.uint8)
    assert np.array_equal(images.test_images[0], (bytes_of_first / 255).astype(np.float32))


def test_the_first_test_image_shows_a_seven(images: Images):
    seven = images.test_images[0].reshape(28, 28) > 0.5
    top, bottom = np.flatnonzero(seven.any(axis=1))[[0, -1]]
    bar, stem = seven[top : top + 3].sum(), seven[bottom - 2 : bottom + 1].sum()
    assert bar > 2 * stem


def test_every_call_of_mnist_returns_new_arrays(images: Images):
    again = mnist()
    assert not np.shares_memory(again.train_images, images.train_images)
    again.train_labels[:] = 0
    assert images.train_labels[0] == 5


def test_an_altered_file_is_refused_with_both_checksums(folder: Path):
    file = folder / f"{SMALL}.xz"
    content = bytearray(lzma.decompress(file.read_bytes()))
    content[100] ^= 1
    file.write_bytes(lzma.compress(content))
    with pytest.raises(DataError) as caught:
        load(folder)
    message = str(caught.value)
    assert f"{SMALL}.xz" in message
    assert "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2" in message
    sums = [word.strip(",") for word in message.split() if len(word.strip(",")) == 64]
    assert len(set(sums)) == 2


def test_a_damaged_embedded_file_is_refused(folder: Path):
    file = folder / f"{SMALL}.xz"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match=f"{SMALL}.xz.*cannot be read"):
        load(folder)


def test_a_missing_embedded_file_is_refused(folder: Path):
    (folder / f"{SMALL}.xz").unlink()
    with pytest.raises(DataError, match=f"{SMALL}.xz.*cannot be read"):
        load(folder)


def test_missing_checksums_are_refused(folder: Path):
    (folder / "SHA256SUMS").unlink()
    with pytest.raises(DataError, match=r"SHA256SUMS.*cannot be read"):
        load(folder)


def test_a_file_without_a_checksum_is_refused(folder: Path):
    sums = (folder / "SHA256SUMS").read_text()
    (folder / "SHA256SUMS").write_text("".join(line for line in sums.splitlines(True) if SMALL not in line))
    with pytest.raises(DataError, match="expected none"):
        load(folder)
