"""Runs the Python blocks of Markdown documents, and compares their output with the text blocks below them."""

import contextlib
import io
import re
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def blocks(text: str) -> list[tuple[str, str | None]]:
    """Each Python block, with the text block right below it, if there is one."""
    return [(code, printed or None) for code, printed in _BLOCK.findall(text)]


def run(path: Path) -> None:
    """Run a document's blocks from top to bottom, as one script; each must print what the document says."""
    text = path.read_text("utf-8")
    script = blocks(text)
    assert len(script) == text.count("```python"), "a Python block must start and end at the margin"
    assert text.count("```text") == sum(printed is not None for _, printed in script), (
        "a text block must be right below a Python block"
    )
    namespace: dict[str, object] = {"__name__": "__main__"}
    threads = torch.get_num_threads()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # fastest for small steps while other tests run
    try:
        for code, expected in script:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, path.name, "exec"), namespace)
            assert printed.getvalue() == (expected or ""), code
    finally:
        torch.set_num_threads(threads)
