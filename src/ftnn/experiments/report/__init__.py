"""Everything in a store, next to the paper's results: an HTML page, or Markdown.

Only the names here are public.
"""

from pathlib import Path

from ftnn import _atomic
from ftnn.errors import FtnnError
from ftnn.experiments.grid.store import Store
from ftnn.experiments.paper.mnist.cells import Cell
from ftnn.experiments.report.as_html import page as page
from ftnn.experiments.report.as_markdown import markdown as markdown
from ftnn.experiments.report.contents import Report as Report
from ftnn.experiments.report.contents import collect as collect


def write_report(store: Store, path: Path, data: str = Cell.data) -> Report:
    """Write a report atomically: Markdown if the name ends in `.md`, otherwise an HTML page.

    The tables are of networks trained on `data`; see `collect`.
    """
    report = collect(store, data)
    text = markdown(report) if path.suffix == ".md" else page(report)
    _atomic.write_or_explain(path, text.encode(), FtnnError, "the report ")
    return report
