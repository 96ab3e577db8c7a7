"""What to expect of a function before training: the questions that the paper had to answer by trial.

The answers are measured: the function is evaluated over the range of inputs, with parameters drawn from their
initial ranges. That works for any formula, and shows how often something happens, not just whether it can.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ftnn._printable import quoted
from ftnn.errors import FormulaError, FtnnError
from ftnn.formula import _measure as measure
from ftnn.formula._expr import INPUT, ZERO, tree_size
from ftnn.formula._numpy import steps
from ftnn.formula._parse import error_in
from ftnn.formula._ranges import finite_interval
from ftnn.formula._text import to_text

if TYPE_CHECKING:
    from ftnn.formula._function import Function
    from ftnn.formula._plan import Plan
    from ftnn.formula._ranges import Range

USUAL = (-1.0, 1.0)
"""The range of inputs to examine if none is given."""
POINTS = 1025
"""Inputs at which the function is evaluated."""
MOST_SILENT = 0.5
"""F(0) as large as this, relative to what inputs change, makes plain gradient descent noticeably worse."""
MAX_PRINTED = 10_000
"""The limit on operations, numbers and names in all printed derivatives."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of `Function.explain`; `str()` formats it for reading.

    A fraction is the share of the parameter draws for which something holds.
    """

    function: Function
    x: Range
    ranges: Mapping[str, Range]
    """The initial range of each parameter: as given, or as a layer of 100 inputs would choose it."""
    inputs: str
    """The inputs for which ranges were chosen, in words."""
    gain: float | None
    """For chosen ranges, the backward gain over the forward gain: 1 for a weight. None if all were given, if
    no range keeps the function finite, and with memory; NaN if it was not measured."""
    derivatives: dict[str, Any]
    """With respect to `x` and each parameter: a SymPy expression, or a text that says why there is none."""
    plan: Plan
    reaches_zero: float
    """The fraction for which F is zero at some input in the range."""
    poles: tuple[tuple[str, float], ...]
    """(place, fraction): where F is not finite."""
    jumps: tuple[tuple[str, float], ...]
    """(place, fraction): where F is not continuous."""
    outside: tuple[float, float, str] | None
    """(share of draws and inputs, share of draws, an example) for which F leaves its domain: it is NaN, as
    the square root of a negative number is. Shares of 0 mean that only training may take it there."""
    overflows: tuple[str, float] | None
    """(an example, the largest |value|) if F or a derivative leaves the range of float32 for some inputs and
    initial parameters."""
    silent: tuple[str, float] | None
    """(F(0), its size) if a silent input, x = 0, sends something; None with memory. The size is relative to
    what inputs in the range change; both are root mean squares over the draws."""
    sleeps: float
    """The fraction for which F is zero on an interval of inputs, but not for all inputs."""
    dead: float
    """The fraction for which F is zero for all inputs."""
    can_die: str
    """Parameters within reach of training for which F is zero everywhere; empty if none were found."""
    can_revive: bool
    """Whether training still moves the parameters of a dead connection."""
    holds: float | None = None
    """For a function with memory whose ranges were chosen, the share of the connections that keep at least a
    tenth of the difference between two states over 100 steps without input."""
    unseen: int = 0
    """The number of places that were not checked for poles and jumps because there are too many."""

    def __str__(self) -> str:
        lines = list(self.lines())
        width = max(len(label) for label, _ in lines)
        return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)

    def lines(self) -> Iterator[tuple[str, str]]:
        """(label, text) pairs, in reading order."""
        low, high = self.x
        function = self.function
        yield "F(x)", function.formula
        yield "parameters", ", ".join(f"{n} in [{a:g}, {b:g}]" for n, (a, b) in self.ranges.items())
        if chosen := [name for name in function.parameters if name not in function.init]:
            yield "chosen", f"{', '.join(chosen)}, for a layer of 100 {self.inputs}: {self._reason()}"
        if function.constants:
            choices = {name: ", ".join(f"{v:g}" for v in values) for name, values in function.choices.items()}
            yield "constants", ", ".join(f"{name} in {{{values}}}" for name, values in choices.items())
        for name, expr in self.derivatives.items():
            yield f"∂F/∂{name}", str(expr)
        yield "computed", ("by GEMM: " if self.plan.kind == "gemm" else "fused: ") + self.plan.reason
        inputs = f"x in [{low:g}, {high:g}]"
        if self.reaches_zero:
            yield "zero", f"reached for {inputs}, {_share(self.reaches_zero)}"
        else:
            yield "zero", f"never reached for {inputs}; often harmless"
        if self.silent and self.silent[1] > MOST_SILENT:
            sent, size = self.silent
            remedy = "in your own training loop, use grounded() or normalise sums"
            yield "at x = 0", f"is {sent}, {size:.2g} times as large as its change with x; {remedy}"
        if self.outside:
            yield "domain", self._domain(inputs)
        outside = f"outside {inputs} and the initial parameters, but training may reach it"
        for label, places in (("pole", self.poles), ("jump", self.jumps)):
            for place, share in places:
                yield label, f"where {place}, {_share(share) if share else outside}"
        if self.unseen:
            yield "not checked", f"{self.unseen} more places that may be poles or jumps: too many to check"
        if self.overflows:
            example, size = self.overflows
            reached = f"|value| up to {size:.3g}" if math.isfinite(size) else "|value| even beyond float64"
            yield "overflow", f"leaves float32 ({reached}), for example at {example}"
        if self.sleeps:
            yield "sleep", f"zero on an interval of inputs, {_share(self.sleeps)}"
        if self.dead:
            yield "dead", f"zero for every input, {_share(self.dead)}"
        if self.can_die:
            fate = "can revive: its parameters still move" if self.can_revive else "then never moves again"
            yield "can die", f"at {self.can_die} it is zero for every input, and {fate}"

    def _domain(self, inputs: str) -> str:
        assert self.outside is not None
        points, draws, example = self.outside
        if not points:
            return f"not left for {inputs} and the initial parameters, but training may: NaN at {example}"
        some = f"{_share(draws)}, at some inputs"
        return f"left for {_percent(points)} of draws and inputs ({some}), which gives NaN, as at {example}"

    def _reason(self) -> str:
        if self.function.has_memory:
            if self.holds is None:
                return "nothing holds a signal, so these are the paper's ±0.1"
            return f"{self.holds:.0%} of the connections hold a signal for 100 steps"
        if self.gain is None:
            return "no range keeps F finite, so the layer refuses it; shown are the paper's ±0.1"
        if math.isnan(self.gain):
            return "no ranges can be compared, so these are the paper's ±0.1"
        return f"errors pass backward {self.gain:.2f} times as well as signals forward; for a weight it is 1"


def _percent(fraction: float) -> str:
    """From 1 % to 99 %, unless it is everything."""
    return f"{max(fraction if fraction >= 1 else min(fraction, 0.99), 0.01):.0%}"


def _share(fraction: float) -> str:
    draws = "every draw" if fraction >= 1 else f"{_percent(fraction)} of the draws"
    return f"for {draws} of its parameters"


def explain(function: Function, x: Range | None) -> Explanation:
    """Examine `function` over the inputs `x` = (low, high)."""
    interval = finite_interval(USUAL if x is None else x)
    if interval is None:
        message = f"the range of inputs must be (low, high), finite and low < high, not {quoted(x)}"
        raise error_in(function.formula, message)
    low, high = interval
    places, unseen = measure.possible_breaks(function.expr)
    measured = [*places["singular"], *places["jump"], *(function.expr,) * 4]
    count = measure.reduced(measure.DRAWS, sum(len(steps(expr)) for expr in measured))
    inputs, ranges, gain, holds = _ranges(function, None if x is None else interval)
    draws = measure.draw(function, ranges, count)
    grid = np.linspace(low, high, POINTS)
    values = measure.values_at(function.expr, grid, draws)
    dead = measure.is_dead(function.expr, grid, draws)
    outside = measure.outside_domain(function, grid, draws, values)
    can_die, can_revive = measure.dead_example(function, ranges, grid, count)
    return Explanation(
        function,
        interval,
        ranges,
        inputs,
        gain,
        _derivatives(function),
        function.plan,
        reaches_zero=float(measure.reaches_zero(function.expr, grid, draws, values).mean()),
        poles=tuple(measure.breaks(function, "singular", places["singular"], grid, draws)),
        jumps=tuple(measure.breaks(function, "jump", places["jump"], grid, draws)),
        outside=outside if outside[-1] else None,
        overflows=measure.overflow(function, ranges, low, high),
        silent=_silent(function, values, draws),
        sleeps=float(((measure.longest_run(values == 0) >= 3) & ~dead).mean()),
        dead=float(dead.mean()),
        can_die=can_die,
        can_revive=can_revive,
        holds=holds,
        unseen=unseen,
    )


def _ranges(
    function: Function, x: Range | None
) -> tuple[str, Mapping[str, Range], float | None, float | None]:
    """The inputs in words: spread over `x`, or what a layer expects; the initial ranges for them; the gain of
    those that were chosen, or with memory the share of connections that hold a signal."""
    from ftnn.formula._balance import balanced
    from ftnn.formula._catalogue import with_paper_ranges
    from ftnn.formula._inputs import Inputs

    words = "standardised inputs" if x is None else f"inputs spread over [{x[0]:g}, {x[1]:g}]"
    if len(function.init) == len(function.parameters):
        return words, function.init, None, None
    try:
        balance = balanced(function, 100, None if x is None else Inputs.of(np.linspace(*x, POINTS)))
    except FormulaError:
        return words, with_paper_ranges(function).init, None, None
    if balance.assumes in ("positive", "negative"):
        words = f"{balance.assumes} inputs, as F is not finite for both signs"
    return words, balance.ranges, None if function.has_memory else balance.gain, balance.holds


def _silent(function: Function, values: measure.Array, draws: measure.Draws) -> tuple[str, float] | None:
    """What a silent input sends, and its size; None if it sends nothing, or what is not finite."""
    if function.at_zero is ZERO or function.has_memory:
        return None
    at_zero = measure.values_at(function.expr, np.zeros(1), draws)
    with np.errstate(all="ignore"):
        size = float(np.sqrt(np.mean(at_zero**2) / np.mean((values - at_zero) ** 2)))
    return (to_text(function.at_zero), size) if np.isfinite(size) else None


def _derivatives(function: Function) -> dict[str, Any]:
    left = MAX_PRINTED
    derivatives: dict[str, Any] = {}
    for name in (INPUT, *function.parameters):
        size = tree_size(function.slope(name))
        try:
            if size > left:
                raise FtnnError(f"too large to print with the others: {size:,} operations")
            derivatives[name] = function.derivative(name)
            left -= size
        except FtnnError as error:
            derivatives[name] = str(error)
    return derivatives
