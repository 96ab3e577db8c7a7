"""Random cases: sizes, matrices, inputs with all kinds of floating-point numbers, and incoming errors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tests.fuzz.bounded import FORMATS, Array, Format
from tests.fuzz.formulas import Formula, Random, formula

LAYOUTS = ("plain", "transposed", "strided", "columns")
"""Memory layouts of x; "columns" has a stride of 0 between inputs, which are then all equal."""


@dataclass(frozen=True)
class Run:
    """One way to compute a case."""

    backend: str
    rows: Array
    """The case's row for each sample of the batch."""
    errors: Array
    """The incoming error at each output, (batch, out). For Memory (time, batch, out)."""
    layout: str = "plain"
    errors_layout: str = "plain"
    threads: int = 1
    by_x: bool = True
    frozen: tuple[str, ...] = ()
    """Parameters without gradients."""


@dataclass(frozen=True)
class Case:
    """A layer, its inputs, and how it is run. Arrays have the tested precision."""

    seed: int
    layer: str
    """"Transfer", "Partial" or "Memory"."""
    form: Format
    formula: Formula
    x: Array
    """(rows, in): the distinct rows. For Memory (time, rows, in)."""
    matrices: dict[str, Array]
    """(in, out) each."""
    state: Array | None = None
    """(rows, in, out)"""
    present: Array | None = None
    """Whether each connection exists, (in, out)."""
    through_time: bool = False
    runs: list[Run] = field(default_factory=list[Run])
    about: str = ""
    """How its numbers were drawn, for the report."""

    @property
    def outputs(self) -> int:
        return next(iter(self.matrices.values())).shape[1]

    @property
    def inputs(self) -> int:
        return self.x.shape[-1]

    @property
    def zeros(self) -> float:
        return float((self.x == 0).mean())


# --- numbers ---

_PAYLOADS = {
    "float32": [0x7FFFFFFF, 0x7FC00001, 0x7F800001, 0xFFC00000, 0x7FBFFFFF, 0xFF800001],
    "float64": [0x7FFFFFFFFFFFFFFF, 0x7FF8000000000001, 0x7FF0000000000001, 0xFFF8000000000000],
}


def specials(form: Format) -> Array:
    """Zeros, denormals, large and infinite numbers, and quiet and signaling NaN with payloads."""
    integer = np.uint32 if form.name == "float32" else np.uint64
    payloads = np.array(_PAYLOADS[form.name], integer).view(form.narrow)
    tiny, least = float(form.tiny), float(form.least)
    plain = [-0.0, -0.0, least, -least, tiny / 3, tiny, 1e30, -1e30, 1e-30, np.inf, -np.inf, np.nan]
    return np.concatenate([np.array(plain, form.narrow), payloads])


def _heavy(random: Random, shape: tuple[int, ...], form: Format) -> Array:
    reach = 30 if form.name == "float32" or random.random() < 0.7 else 200
    return 10.0 ** random.uniform(-reach, reach, shape) * random.choice([-1, 1], shape)


_TEMPTING = {
    "powers": ("far", "near"),
    "sums": ("far", "near"),
    "exponentials": ("wide", "near"),
    "waves": ("far", "near"),
    "large at zero": ("ones", "small"),
}
"""For a family of formulas, inputs and matrices with which computing them in another way goes wrong."""
_INPUT_STYLES = ("normal", "normal", "unit", "far", "whole", "ones", "wide", "heavy")
_MATRIX_STYLES = ("moderate", "moderate", "start", "small", "tiny", "whole", "near", "heavy", "one")


def _inputs(random: Random, shape: tuple[int, ...], form: Format, family: str) -> tuple[Array, str]:
    style = str(random.choice(_INPUT_STYLES))
    if family in _TEMPTING and random.random() < 0.35:
        style = _TEMPTING[family][0]
    match style:
        case "normal":
            drawn = random.normal(size=shape)
        case "unit":
            drawn = random.uniform(0, 1, shape)
        case "far":
            drawn = 10.0 ** random.uniform(1, 4) * random.choice([-1, 1]) + random.uniform(-1, 1, shape)
        case "whole":
            drawn = random.integers(-3, 4, shape).astype(float)
        case "ones":
            drawn = np.ones(shape)
        case "wide":
            drawn = random.normal(size=shape) * 30
        case _:
            drawn = _heavy(random, shape, form)
    return drawn, style


def _matrix(random: Random, shape: tuple[int, ...], form: Format, family: str, x: Array) -> tuple[Array, str]:
    style = str(random.choice(_MATRIX_STYLES))
    if family in _TEMPTING and random.random() < 0.35:
        style = _TEMPTING[family][1]
    signs = random.choice([-1, 1], shape)
    match style:
        case "moderate":
            drawn = 10.0 ** random.uniform(-2, 1, shape) * signs
        case "start":
            drawn = random.uniform(-0.1, 0.1, shape)
        case "small":
            drawn = random.uniform(0.5, 2) * 1e-4 * np.ones(shape)
        case "tiny":
            drawn = 10.0 ** random.uniform(-35, -5) * signs
        case "whole":
            drawn = random.integers(-2, 3, shape).astype(float)
        case "near":  # where x - q cancels
            finite = x[np.isfinite(x) & (x != 0)]
            centre = (random.choice(finite) if finite.size else 1.0) * random.choice([-1, 1])
            drawn = centre + random.choice([-0.5, 0.5, 0.25, -1e-3], shape) * random.choice([0, 1, 1])
        case "heavy":
            drawn = _heavy(random, shape, form)
        case _:
            drawn = np.full(shape, float(random.choice([1.0, -1.0, 20.0, -20.0, 5.0])))
    return drawn, style


def _errors(random: Random, shape: tuple[int, ...]) -> Array:
    drawn = random.normal(size=shape)
    style = random.random()
    if style < 0.2:  # one dominant sample
        drawn = drawn * 1e-3
        drawn[..., int(random.integers(shape[-2])), :] = 1e5
    elif style < 0.35:
        drawn = drawn * 10.0 ** random.uniform(-6, 6, shape)
    elif style < 0.45:
        drawn = np.where(random.random(shape) < 0.5, 0.0, drawn)
    elif style < 0.5:
        drawn = drawn * 1e-20
    return drawn


def _rounded(array: Array, form: Format) -> Array:
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(array, dtype=form.narrow)


def _silent(random: Random, shape: tuple[int, ...], share: float) -> Array:
    """Which inputs are zero: scattered ones, or whole rows or columns."""
    drawn = random.random()
    if drawn < 0.55:
        return random.random(shape) < share
    if drawn < 0.9:
        return np.broadcast_to(random.random((*shape[:-1], 1)) < max(share, 0.3), shape)
    return np.broadcast_to(random.random(shape[-1]) < share, shape)


# --- cases ---

_SHARES = [0, 0, 0, 0.3, 0.5, 0.8, 0.8, 0.9, 0.95, 1.0]
"""Shares of zeros among the inputs."""
_INPUTS = [1, 2, 3, 5, 8, 15, 16, 17, 18, 24, 31, 33, 40, 67]
_OUTPUTS = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 19, 33]
_BATCHES = [1, 2, 3, 4, 7, 8, 15, 16, 17, 33, 63, 64, 65, 129]


def case(seed: int) -> Case:
    """The case of a seed: the same on every machine."""
    random = np.random.default_rng([seed, 15])
    form = FORMATS["float32" if random.random() < 0.65 else "float64"]
    layer = str(random.choice(["Transfer"] * 8 + ["Partial", "Memory"]))
    mixed = layer != "Memory" and random.random() < 0.05
    drawn = formula(random, memory=layer == "Memory", mixed=mixed)
    rows = int(random.choice([1, 2, 3, 4, 6]))
    inputs = int(random.choice(_INPUTS))
    outputs = int(random.choice(_OUTPUTS))
    if layer == "Memory":
        inputs, outputs = min(inputs, 9), min(outputs, 9)
    times = int(random.integers(1, 4)) if layer == "Memory" else 0
    shape = (times, rows, inputs) if times else (rows, inputs)

    x, style = _inputs(random, shape, form, drawn.family)
    share = float(random.choice(_SHARES))
    x = _rounded(np.where(_silent(random, shape, share), 0.0, x), form)
    if rows > 1 and random.random() < 0.15:
        x[..., int(random.integers(rows)), :] = 1  # one row of ones among the others
    about = [style]
    if random.random() < 0.35:
        odd = specials(form)
        many = int(random.integers(1, 4))
        places = tuple(random.integers(0, n, many) for n in shape)
        x[places] = odd[random.integers(0, len(odd), many)]
        about.append("specials")
    matrices: dict[str, Array] = {}
    for name in drawn.parameters:
        matrix, kind = _matrix(random, (inputs, outputs), form, drawn.family, x)
        matrices[name] = _rounded(matrix, form)
        about.append(f"{name} {kind}")
        if random.random() < 0.04:
            place = (int(random.integers(inputs)), int(random.integers(outputs)))
            matrices[name][place] = random.choice(specials(form))
            about.append(f"{name} special")
    for name in drawn.constants:
        choices = np.arange(len(drawn.kinds)) if name == "kind" else np.array([-1, 1])
        matrices[name] = _rounded(random.choice(choices, (inputs, outputs)), form)
    result = Case(seed, layer, form, drawn, x, matrices, about=", ".join(about))
    if layer == "Partial":
        present = random.random((inputs, outputs)) < random.choice([0.1, 0.5, 1.0])
        result = replace(result, present=present)
    if layer == "Memory":
        state = random.normal(size=(rows, inputs, outputs)) * (random.random() < 0.7)
        result = replace(result, state=_rounded(state, form), through_time=bool(random.random() < 0.5))
    result.runs.extend(_runs(random, result))
    return result


def _runs(random: Random, case: Case) -> list[Run]:
    """The whole batch by every backend, and a few rows of it alone."""
    rows = case.x.shape[-2]
    threads, layout = int(random.choice([1, 2])), str(random.choice(LAYOUTS, p=[0.55, 0.2, 0.2, 0.05]))
    batch = int(random.choice(_BATCHES)) if random.random() > 0.03 else 1030
    if case.layer == "Memory":
        batch = rows
    if random.random() < 0.08:  # one row, repeated with a stride of 0
        which, layout = np.full(batch, int(random.integers(rows))), "rows"
    else:
        which = random.permutation(np.arange(max(batch, rows)) % rows)
    shape = (*case.x.shape[:-2], len(which), case.outputs)
    errors = _rounded(_errors(random, shape), case.form)
    errors_layout = str(random.choice(["plain", "transposed", "expanded"], p=[0.7, 0.15, 0.15]))
    if errors_layout == "expanded":
        errors[...] = errors.flat[0]
    by_x = bool(random.random() > 0.15)
    frozen = tuple(n for n in case.formula.parameters if random.random() < 0.07)
    whole = Run("auto", which, errors, layout, errors_layout, threads, by_x, frozen)
    if layout == "columns":
        case.x[...] = case.x[..., :1]
    runs = [whole]
    if case.layer != "Memory":
        runs.append(replace(whole, backend="cpu"))
        if len(which) <= 200:
            runs.append(replace(whole, backend="reference"))
    few = which[: int(random.choice([1, 1, 2]))]
    alone = replace(whole, rows=few, errors=errors[..., : len(few), :], layout="plain", threads=1)
    return [*runs, alone]
