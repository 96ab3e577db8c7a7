"""A MkDocs hook that turns equations into MathML, which needs no script."""

import re
from typing import Any

from latex2mathml.converter import convert

_FENCED = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each fenced LaTeX block, which code hosts render too, with MathML on one line."""
    return _FENCED.sub(lambda match: _mathml(match[1]), markdown)


def _mathml(latex: str) -> str:
    mathml = convert(" ".join(latex.split()), display="block")
    return f'<div class="equation">{mathml}</div>'
