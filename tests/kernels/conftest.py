"""Which kernels compute the small problems of tests."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from ftnn.kernels.cpu import small


@pytest.fixture(scope="module")
def kernels_for_large_layers() -> Generator[None]:
    """Small layers are computed by the kernels for large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small, "MOST", 0)
        yield


@pytest.fixture(scope="module", params=["small", "large"])
def kernels_for_layers_of_any_size(request: pytest.FixtureRequest) -> None:
    """Small layers are computed by the kernels for them, then by those for large ones."""
    if request.param == "large":
        request.getfixturevalue("kernels_for_large_layers")
