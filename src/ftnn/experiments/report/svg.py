"""Small charts as SVG text, without fonts or scripts; colours come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Frame:
    """Maps a chart's numbers to places in its picture."""

    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]
    left: float = 34.0
    right: float = 8.0
    top: float = 8.0
    bottom: float = 22.0

    def to_x(self, value: Any) -> Any:
        low, high = self.x
        return self.left + (value - low) / ((high - low) or 1.0) * (self.width - self.left - self.right)

    def to_y(self, value: Any) -> Any:
        low, high = self.y
        return (
            self.height
            - self.bottom
            - (value - low) / ((high - low) or 1.0) * (self.height - self.top - self.bottom)
        )


def path(frame: Frame, x: Array, y: Array, close: bool = False) -> str:
    """The `d` of a line. Points that are not finite interrupt it; points far outside are clipped."""
    span = frame.y[1] - frame.y[0]
    x, y = np.asarray(x, float), np.asarray(y, float)
    finite = np.isfinite(x) & np.isfinite(y)
    with np.errstate(all="ignore"):
        across = frame.to_x(x).tolist()
        down = frame.to_y(np.clip(y, frame.y[0] - span, frame.y[1] + span)).tolist()
    parts: list[str] = []
    command = "M"
    for a, b, is_finite in zip(across, down, finite.tolist(), strict=True):
        if is_finite:
            parts.append(f"{command}{_n(a)} {_n(b)}")
        command = "L" if is_finite else "M"
    return "".join(parts) + ("Z" if close and parts else "")


def line(frame: Frame, x: Array, y: Array, kind: str, title: str = "") -> str:
    """A line; `title` is shown on hover."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<path class="{kind}" d="{path(frame, x, y)}">{inner}</path>'


def band(frame: Frame, x: Array, low: Array, high: Array, kind: str) -> str:
    """The area between two lines."""
    outline = path(frame, np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]]), close=True)
    return f'<path class="{kind}" d="{outline}"/>'


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    classes = f' class="{kind}"' if kind else ""
    return f'<text{classes} x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{escape(content)}</text>'


def axes(
    frame: Frame, x_ticks: Iterable[float], y_ticks: Iterable[float], x_label: str = "", y_label: str = ""
) -> str:
    """A grid with numbers. `x_label` needs a margin of 36 below the chart, `y_label` 20 above it."""
    right, bottom = frame.width - frame.right, frame.height - frame.bottom
    parts: list[str] = []
    for tick in y_ticks:
        y = frame.to_y(tick)
        parts.append(f'<path class="grid" d="M{_n(frame.left)} {_n(y)}H{_n(right)}"/>')
        parts.append(text(frame.left - 4, y + 3.5, number(tick), "tick", "end"))
    for tick in x_ticks:
        x = frame.to_x(tick)
        parts.append(f'<path class="grid" d="M{_n(x)} {_n(frame.top)}V{_n(bottom)}"/>')
        parts.append(text(x, bottom + 17, number(tick), "tick", "middle"))
    if x_label:
        parts.append(text((frame.left + right) / 2, bottom + 31, x_label, "tick", "middle"))
    if y_label:
        parts.append(text(2, frame.top - 9, y_label, "tick"))
    return "".join(parts)


def picture(frame: Frame, parts: Sequence[str], title: str, style: str = "") -> str:
    """The complete picture; `title` is for screen readers, `style` makes it standalone."""
    size = f"0 0 {_n(frame.width)} {_n(frame.height)}"
    standalone = f' xmlns="http://www.w3.org/2000/svg" width="{_n(frame.width)}" height="{_n(frame.height)}"'
    return (
        f'<svg{standalone if style else ""} viewBox="{size}" role="img" aria-label="{escape(title)}">'
        + (f"<style>{style}</style>" if style else "")
        + "".join(parts)
        + "</svg>"
    )


def round_ticks(low: float, high: float, about: int = 4) -> list[float]:
    """At least two round numbers between `low` and `high`."""
    if not high > low:
        return [low]
    while True:
        rough = (high - low) / about
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last > first:
            return [float(f"{place * step:.10g}") for place in range(first, last + 1)]
        about *= 2


def number(value: float) -> str:
    """A number for people, with a real minus sign."""
    return f"{value:.4g}".replace("-", "−")


def _n(value: float) -> str:
    """A coordinate, rounded to a tenth to keep the page small."""
    return f"{value:.1f}".removesuffix(".0")
