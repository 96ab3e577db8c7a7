"""MNIST, by Yann LeCun, Corinna Cortes and Christopher J. C. Burges, embedded in the package."""

import hashlib
import io
import lzma
from importlib.resources import files
from importlib.resources.abc import Traversable

from ftnn.data._idx import Images, NamedArray, gather, parse_idx
from ftnn.errors import DataError


def mnist() -> Images:
    """The 60,000 training and 10,000 test images of handwritten digits: (60000, 784) and (10000, 784).

    Nothing is downloaded. Each call returns new arrays (0.22 GB), so that callers can modify them safely.
    """
    return load(files("ftnn.data") / "_files" / "mnist")


def load(folder: Traversable) -> Images:
    """The four xz files in `folder`, verified against SHA256SUMS."""
    sums = _sums(folder)

    def read(name: str) -> NamedArray:
        file = f"{name}.xz"
        try:
            content = lzma.decompress((folder / file).read_bytes(), format=lzma.FORMAT_XZ)
        except (OSError, lzma.LZMAError) as error:
            raise DataError(f"{file}: the embedded file cannot be read: {error}") from error
        digest, expected = hashlib.sha256(content).hexdigest(), sums.get(name, "none")
        if digest != expected:
            raise DataError(
                f"{file}: the embedded file is damaged: "
                f"the SHA-256 of its content is {digest}, expected {expected}"
            )
        return NamedArray(file, parse_idx(io.BytesIO(content), file))

    return gather(read)


def _sums(folder: Traversable) -> dict[str, str]:
    """Name → SHA-256, from the lines `digest  name` that sha256sum writes."""
    try:
        lines = (folder / "SHA256SUMS").read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"SHA256SUMS: the embedded file cannot be read: {error}") from error
    return {name.strip(): digest for digest, _, name in (line.partition(" ") for line in lines)}
