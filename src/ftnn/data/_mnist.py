"""MNIST, by Yann LeCun, Corinna Cortes and Christopher J. C. Burges, embedded in the package."""

import hashlib
import io
import lzma
from importlib.resources import files
from importlib.resources.abc import Traversable

from ftnn.data._idx import Images, Named, gather, parse_idx
from ftnn.errors import DataError


def mnist() -> Images:
    """The 60,000 training and 10,000 test images of handwritten digits: (60000, 784) and (10000, 784).

    Nothing is downloaded. Each call makes its own arrays, 0.22 GB, so that no caller can alter another's.
    """
    return load(files("ftnn.data") / "_files" / "mnist")


def load(folder: Traversable) -> Images:
    """The four files in `folder`, packed by xz; the SHA-256 of each content must be that in SHA256SUMS."""
    sums = _sums(folder)

    def read(name: str) -> Named:
        packed = f"{name}.xz"
        try:
            content = lzma.decompress((folder / packed).read_bytes(), format=lzma.FORMAT_XZ)
        except (OSError, lzma.LZMAError) as error:
            raise DataError(f"{packed}: the embedded file cannot be read: {error}") from error
        found, expected = hashlib.sha256(content).hexdigest(), sums.get(name, "none")
        if found != expected:
            raise DataError(
                f"{packed}: the embedded file is damaged: "
                f"the SHA-256 of its content is {found}, expected {expected}"
            )
        return Named(packed, parse_idx(io.BytesIO(content), packed))

    return gather(read)


def _sums(folder: Traversable) -> dict[str, str]:
    """Name to SHA-256, from the lines `sum  name` that sha256sum writes."""
    try:
        lines = (folder / "SHA256SUMS").read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"SHA256SUMS: the embedded file cannot be read: {error}") from error
    return {name.strip(): total for total, _, name in (line.partition(" ") for line in lines)}
