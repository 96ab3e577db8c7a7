"""A report as a file."""

from __future__ import annotations

from pathlib import Path

from ftnn import _atomic
from ftnn.errors import FtnnError
from ftnn.experiments._store import Store
from ftnn.experiments.report._collect import Report, collect
from ftnn.experiments.report._markdown import markdown
from ftnn.experiments.report._page import page


def write_report(store: Store, path: Path) -> Report:
    """Write a report, whole or not at all: a page of HTML or, where the name ends in `.md`, Markdown."""
    report = collect(store)
    text = markdown(report) if path.suffix == ".md" else page(report)
    try:
        _atomic.write(path, text.encode())
    except OSError as error:
        raise FtnnError(
            f"--out {path}: {error.strerror or error}; name a file in a folder that is there and can be "
            "written"
        ) from error
    return report
