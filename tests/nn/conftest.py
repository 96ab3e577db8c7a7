"""Fixtures for tests of modules."""

from pathlib import Path

import pytest

import ftnn
from ftnn.nn import Transfer
from tests.nn.models import WAVE


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model file."""
    ftnn.save(Transfer(3, 2, WAVE), tmp_path / "model.ftnn")
    return tmp_path / "model.ftnn"
