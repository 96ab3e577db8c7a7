"""The folder that `ftnn train --out` writes, and how a saved model reads tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftnn.cli._table_options import character
from ftnn.errors import ModelFileError

if TYPE_CHECKING:
    from ftnn.data._table_files import CsvFormat

MODEL, CHECKPOINT = "model.safetensors", "checkpoint.safetensors"


def model_file(model: Path) -> Path:
    """The file of a model, given as a file or as the folder that `ftnn train --out` wrote."""
    if not model.is_dir():
        return model
    if not (model / MODEL).exists() and (model / CHECKPOINT).exists():
        raise ModelFileError(
            f"the training in {model} is not finished: repeat `ftnn train` with the same options to continue"
        )
    return model / MODEL


def csv_format(notes: Mapping[str, Any], separator: str | None, decimal: str | None) -> CsvFormat:
    """How to read a CSV file for a model: as these options say, or else as those of training did."""
    from ftnn.data._table_files import CsvFormat

    saved = notes.get("csv")
    saved = {name: sign for name, sign in saved.items() if sign} if isinstance(saved, dict) else {}
    given: Any = {"separator": character(separator), "decimal": decimal}
    chosen = {name: saved.get(name) if sign is None else sign for name, sign in given.items()}
    texts: dict[str, Any] = {name: str(sign) for name, sign in chosen.items() if sign is not None}
    return CsvFormat(**texts)  # which checks them
