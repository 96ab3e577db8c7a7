"""Pictures of functions: the catalogue with initial parameters, and trained connections."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from ftnn.experiments.grid.rows import Row, rows_of
from ftnn.experiments.paper.mnist.cells import Cell, FineTuning
from ftnn.experiments.paper.mnist.functions import function_of
from ftnn.experiments.paper.values import first_layer
from ftnn.experiments.report import svg
from ftnn.experiments.report.conic import Parameters
from ftnn.experiments.report.svg import Frame
from ftnn.experiments.report.texts import layers_of
from ftnn.formula import Function, catalogue
from ftnn.formula._numpy import evaluate

Array = np.ndarray[Any, np.dtype[Any]]
DRAWS = 5
"""Curves per picture."""
POINTS = 61


@dataclass(frozen=True)
class CatalogueFunction:
    name: str
    formula: str
    typeset: list[tuple[str, str]]
    """(label, MathML) of F and its derivatives, made by `tests/experiments/report/typesetting.py`."""
    start: str
    """The initial ranges of its parameters."""
    picture: str


@dataclass(frozen=True)
class Trained:
    """Connections of a trained network."""

    function: str
    cell: str
    accuracy: float
    picture: str
    formula: str
    """The strongest one, with numbers."""


# --- the catalogue ---


def gallery() -> list[CatalogueFunction]:
    typeset = json.loads((files("ftnn.experiments.report") / "typeset.json").read_text("utf-8"))
    return [
        CatalogueFunction(name, function.formula, typeset[name], _start(function), _draws(name, function))
        for name, function in catalogue.items()
    ]


def _start(function: Function) -> str:
    parts = [
        f"{name} in ±{svg.number(high)}"
        if low == -high
        else f"{name} in [{svg.number(low)}, {svg.number(high)}]"
        for name, (low, high) in function.init.items()
    ]
    parts += [f"{name} of {', '.join(map(svg.number, values))}" for name, values in function.choices.items()]
    return "; ".join(parts)


def _draws(name: str, function: Function) -> str:
    """F and ∂F/∂x for random parameters. A memory function's previous value is drawn from ±0.5."""
    rng = np.random.default_rng(19)
    x = np.linspace(-1, 1, POINTS)
    values: dict[str, Any] = {"x": x[:, None]}
    values |= {each: rng.uniform(low, high, DRAWS) for each, (low, high) in function.init.items()}
    values |= {each: rng.choice(choices, DRAWS) for each, choices in function.choices.items()}
    if function.has_memory:
        values["C"] = rng.uniform(-0.5, 0.5, DRAWS)
    shape = (POINTS, DRAWS)
    value, slope = (
        np.broadcast_to(evaluate(expr, values), shape) for expr in (function.expr, function.slope("x"))
    )
    return _picture(x, value, f"F(x) of {DRAWS} random connections of {name}", "F") + _picture(
        x, slope, f"∂F/∂x of {DRAWS} random connections of {name}", "∂F/∂x"
    )


def _picture(x: Array, curves: Array, title: str, label: str, size: tuple[float, float] = (190, 120)) -> str:
    """Curves, (points, n), over x."""
    low, high = _limits(curves)
    ticks = svg.round_ticks(low, high, 3)
    left = 10 + 6.8 * max(len(svg.number(tick)) for tick in ticks)  # the width of a digit in most fonts
    frame = Frame(*size, (float(x[0]), float(x[-1])), (low, high), left=left, top=20)
    parts = [svg.axes(frame, svg.round_ticks(float(x[0]), float(x[-1]), 2), ticks, "", label)]
    parts += [svg.line(frame, x, curves[:, n], f"line thin s{n % 6}") for n in range(curves.shape[1])]
    return svg.picture(frame, parts, title)


def _limits(curves: Array) -> tuple[float, float]:
    finite = curves[np.isfinite(curves)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (-1.0, 1.0)
    if high - low < 1e-9 * max(1.0, abs(low)):
        low, high = low - max(abs(low), 1.0) / 2, high + max(abs(high), 1.0) / 2
    margin = 0.06 * (high - low)
    return low - margin, high + margin


# --- trained networks ---

_PIXEL_VALUES = np.linspace(0, 1, 5)
# The middle of an image. Pixels at the border are always dark, so nothing was learned there.
_MIDDLE = (28 * np.arange(8, 20)[:, None] + np.arange(8, 20)).ravel()


def trained(parameters: Parameters, rows: Iterable[Row]) -> list[Trained]:
    """For each function, connections of the best network whose parameters are known."""
    by_function: dict[str, list[tuple[Cell, Row]]] = defaultdict(list)
    for cell, row in rows_of(FineTuning, rows):
        if not row.failed and row.ft_accuracy is not None:
            by_function[cell.function].append((cell, row))
    pictures: list[Trained] = []
    for function in sorted(by_function, key=lambda name: (name not in catalogue, name)):
        # Shallow networks first: their first layer is the easiest to interpret.
        for cell, row in sorted(by_function[function], key=_rank):
            arrays = parameters(row.task)
            if arrays is not None:
                pictures.append(_strongest(cell, row, arrays))
                break
    return pictures


def _rank(candidate: tuple[Cell, Row]) -> tuple[int, float]:
    cell, row = candidate
    return cell.hidden_layers, -(row.ft_accuracy or 0.0)


def _strongest(cell: Cell, row: Row, arrays: Mapping[str, Array]) -> Trained:
    """The first-layer connections, one per unit, whose signal changes most from dark to bright pixels."""
    function = function_of(cell.function)
    values = {name: arrays[stored][_MIDDLE] for name, stored in first_layer(function).items()}
    shape = (len(_PIXEL_VALUES), *next(iter(values.values())).shape)
    signals = np.broadcast_to(function(_PIXEL_VALUES[:, None, None], **values), shape)
    with np.errstate(all="ignore"):
        strength = np.nan_to_num(np.ptp(signals, axis=0), nan=-1.0, posinf=-1.0)
    units = np.argsort(-strength.max(0), kind="stable")[:DRAWS]
    inputs = strength[:, units].argmax(0)
    chosen = {name: array[inputs, units].astype(np.float64) for name, array in values.items()}
    x = np.linspace(-0.25, 1.25, POINTS)
    curves = np.broadcast_to(function(x[:, None], **chosen), (POINTS, len(units)))
    title = f"{len(units)} strong connections of {cell} after training"
    return Trained(
        function=cell.function,
        cell=f"{cell}, {layers_of(cell.hidden_layers)}",
        accuracy=row.ft_accuracy or 0.0,
        picture=_picture(x, curves, title, "F", (280, 150)),
        formula=_with_numbers(function, {name: float(array[0]) for name, array in chosen.items()}),
    )


def _with_numbers(function: Function, values: Mapping[str, float]) -> str:
    numbers = [f"{name} = {value:.3g}".replace("-", "−") for name, value in values.items()]
    return f"{function.formula}, {', '.join(numbers)}"
