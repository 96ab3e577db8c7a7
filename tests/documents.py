"""Documents whose code runs: Python blocks of Markdown, and what a text block behind one says it prints."""

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
    """Each Python block, and what a text block right behind it says that it prints."""
    return [(code, printed or None) for code, printed in _BLOCK.findall(text)]


def run(path: Path) -> None:
    """Run a document's blocks from top to bottom, as one script; each must print what the document says."""
    text = path.read_text("utf-8")
    found = blocks(text)
    assert len(found) == text.count("```python"), "a Python block begins and ends at the margin"
    assert text.count("```text") == sum(printed is not None for _, printed in found), (
        "a text block stands right behind code"
    )
    namespace: dict[str, object] = {"__name__": "__main__"}
    threads = torch.get_num_threads()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # for small steps the quickest, beside other tests
    try:
        for code, expected in found:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, path.name, "exec"), namespace)
            assert printed.getvalue() == (expected or ""), code
    finally:
        torch.set_num_threads(threads)
