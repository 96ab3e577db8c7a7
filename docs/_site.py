"""What MkDocs calls when it builds this site: equations become MathML, which needs no script."""

import re
from typing import Any

from latex2mathml.converter import convert

_FENCED = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Each block of LaTeX that a forge would draw too, as MathML on one line."""
    return _FENCED.sub(lambda found: _mathml(found[1]), markdown)


def _mathml(latex: str) -> str:
    drawn = convert(" ".join(latex.split()), display="block")
    return f'<div class="equation">{drawn}</div>'
