"""What a function will do before it is trained: the questions that the paper had to answer by trial.

The answers are measured: parameters are drawn from their initial ranges, the input runs over its own, and the
function is looked at. That works for any formula, and says how often, where algebra would say only whether.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ftnn.errors import FormulaError
from ftnn.formula._derive import rule
from ftnn.formula._expr import INPUT, MEMORY, ZERO, Call, Expr, Number, call, names, postorder, substitute
from ftnn.formula._numpy import Array, evaluate
from ftnn.formula._ops import ARGUMENTS, OPS
from ftnn.formula._text import to_text

if TYPE_CHECKING:
    from ftnn.formula._function import Function, Range
    from ftnn.formula._plan import Plan

DRAWS, POINTS = 256, 1025
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `Function.explain` found. Fractions are of the drawn parameters; `str()` is for people."""

    function: Function
    x: Range
    derivatives: dict[str, Any]
    """By `x` and each parameter, as SymPy expressions."""
    plan: Plan
    reaches_zero: float
    """For how many draws F is zero for some input within reach."""
    poles: tuple[tuple[str, float], ...]
    """(where, for how many draws): F is not finite there."""
    jumps: tuple[tuple[str, float], ...]
    """(where, for how many draws): F is not continuous there."""
    overflows: tuple[str, float] | None
    """(an example, largest |value|) where F or a derivative leaves float32 over what inputs and initial parameters span."""
    sleeps: float
    """For how many draws F is zero on an interval of inputs, but not everywhere."""
    dead: float
    """For how many draws F is zero everywhere."""
    can_die: str
    """Parameters within reach of training for which F is zero everywhere; empty if none were found."""
    can_revive: bool
    """Whether a dead connection's parameters still move."""

    def __str__(self) -> str:
        return "\n".join(f"{label:<13}{text}" for label, text in self.lines())

    def lines(self) -> Iterator[tuple[str, str]]:
        """(label, text), in the order of reading."""
        low, high = self.x
        function = self.function
        yield "F(x)", function.formula
        yield "parameters", ", ".join(f"{n} in [{a:g}, {b:g}]" for n, (a, b) in function.init.items())
        if function.constants:
            yield (
                "constants",
                ", ".join(
                    f"{n} in {{{', '.join(f'{v:g}' for v in c)}}}" for n, c in function.choices.items()
                ),
            )
        for name, expr in self.derivatives.items():
            yield f"∂F/∂{name}", str(expr)
        yield "computed", ("by GEMM: " if self.plan.kind == "gemm" else "fused: ") + self.plan.reason
        where = f"for x in [{low:g}, {high:g}]"
        if self.reaches_zero:
            yield "zero", f"reached {where}, {_share(self.reaches_zero)}"
        else:
            yield "zero", f"never reached {where}: a caution, not a verdict (see grounded())"
        for label, found in (("pole", self.poles), ("jump", self.jumps)):
            for place, share in found:
                reach = (
                    _share(share)
                    if share
                    else f"beyond x in [{low:g}, {high:g}] and the initial parameters, but not beyond training"
                )
                yield label, f"where {place}, {reach}"
        if self.overflows:
            yield (
                "overflow",
                f"leaves float32 (|value| up to {self.overflows[1]:.3g}), for example at {self.overflows[0]}",
            )
        if self.sleeps:
            yield "sleep", f"zero on an interval of inputs, {_share(self.sleeps)}"
        if self.dead:
            yield "dead", f"zero for every input, {_share(self.dead)}"
        if self.can_die:
            fate = (
                "and can revive: its parameters still move"
                if self.can_revive
                else "and then never moves again"
            )
            yield "can die", f"at {self.can_die} it is zero for every input, {fate}"


def _share(fraction: float) -> str:
    return (
        "for every draw of its parameters"
        if fraction >= 1
        else f"for {max(fraction, 0.01):.0%} of the draws of its parameters"
    )


def explain(function: Function, x: Range) -> Explanation:
    """Look at `function` over the inputs `x` = (low, high)."""
    low, high = (float(bound) for bound in x)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise FormulaError(
            f"the range of inputs must be finite and low < high, not {x!r}", text=function.formula
        )
    draws = _draws(function, function.init)
    grid = np.linspace(low, high, POINTS)
    values = _values(function.expr, grid, draws)
    zero = values == 0
    longest = _longest_run(zero)
    can_die, can_revive = _death(function, grid)
    by = (INPUT, *function.parameters)
    return Explanation(
        function,
        (low, high),
        {name: function.derivative(name) for name in by},
        function.plan,
        float(_reach_zero(function.expr, grid, draws, values).mean()),
        tuple(_breaks(function, "singular", grid, draws)),
        tuple(_breaks(function, "jump", grid, draws)),
        _overflow(function, low, high),
        float(((longest >= 3) & ~zero.all(1)).mean()),
        float(zero.all(1).mean()),
        can_die,
        can_revive,
    )


def is_finite_at_zero(function: Function) -> bool:
    """Whether F(0) is finite wherever the parameters start."""
    return bool(np.isfinite(_values(function.at_zero, np.zeros(1), _draws(function, function.init))).all())


Draws = dict[str, Array]


def _draws(function: Function, ranges: dict[str, Range]) -> Draws:
    """Parameters, constants and memory, each (DRAWS, 1): always the same ones."""
    random = np.random.default_rng(0)
    # Open intervals: p = 0 happens to nobody, but would make any p*f(x) reach zero.
    drawn = {n: low + (high - low) * random.uniform(1e-9, 1, (DRAWS, 1)) for n, (low, high) in ranges.items()}
    drawn |= {n: random.choice(np.asarray(c), (DRAWS, 1)) for n, c in function.choices.items()}
    return drawn | {MEMORY: random.uniform(-1, 1, (DRAWS, 1))}


def _values(expr: Expr, x: Array, draws: Draws) -> Array:
    """(draws, points)."""
    shape = (DRAWS, x.shape[-1])
    return np.broadcast_to(evaluate(expr, {INPUT: x, **draws}), shape)


def _longest_run(mask: Array | Any) -> Any:
    """The longest run of True in each row."""
    best = np.zeros(mask.shape[0], dtype=int)
    run = np.zeros_like(best)
    for column in mask.T:
        run = np.where(column, run + 1, 0)
        best = np.maximum(best, run)
    return best


def _reach_zero(expr: Expr, grid: Array, draws: Draws, values: Array) -> Any:
    """For each draw, whether F is zero somewhere: it is 0, passes through 0, or touches it."""
    return (values == 0).any(1) | _passes(expr, grid, draws, values) | _touches(expr, grid, draws, values)


def _passes(expr: Expr, grid: Array, draws: Draws, values: Array) -> Any:
    """Whether F changes its sign through zero, and not across a pole or a jump."""
    size = np.where(np.isfinite(values), np.abs(values), np.inf)
    ends = np.maximum(size[:, 1:], size[:, :-1])
    sign = np.sign(values)
    changes = (sign[:, 1:] * sign[:, :-1] < 0) & np.isfinite(ends)
    ends = np.where(changes, ends, np.inf)
    first = ends.argmin(1)  # the crossing where F is smallest: if any is a zero, this is
    low, high = _bisect(expr, grid, first, draws)
    left = np.abs(evaluate(expr, {INPUT: low, **draws}))[:, 0]
    return changes.any(1) & (left < 1e-6 * ends.min(1))


def _bisect(expr: Expr, grid: Array, first: Any, draws: Draws) -> tuple[Array, Array]:
    """For each draw, the two sides, (DRAWS, 1) each, of the place in [grid[first], grid[first + 1]] where the sign changes."""
    low, high = grid[first][:, None], grid[first + 1][:, None]
    below = evaluate(expr, {INPUT: low, **draws}) < 0
    for _ in range(48):
        middle = (low + high) / 2
        same = (evaluate(expr, {INPUT: middle, **draws}) < 0) == below
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return low, high


def _touches(expr: Expr, grid: Array, draws: Draws, values: Array) -> Any:
    """Whether the smallest |F|, looked at ever more closely, vanishes beside its neighbours."""
    size = np.where(np.isfinite(values), np.abs(values), np.inf)
    centre = grid[size.argmin(1)][:, None]
    width = grid[1] - grid[0]
    beside = np.clip(centre + width * np.array([-1, 1]), grid[0], grid[-1])
    scale = np.nanmax(np.abs(evaluate(expr, {INPUT: beside, **draws})), 1)
    for _ in range(6):
        near = np.clip(centre + width * np.linspace(-1, 1, 65), grid[0], grid[-1])
        found = np.abs(evaluate(expr, {INPUT: near, **draws}))
        found = np.where(np.isfinite(found), found, np.inf)
        best = found.argmin(1)[:, None]
        centre = np.take_along_axis(near, best, 1)
        width /= 32
    return np.take_along_axis(found, best, 1)[:, 0] < 1e-12 * scale


def _breaks(function: Function, kind: str, grid: Array, draws: Draws) -> Iterator[tuple[str, float]]:
    """(where, for how many draws) F has poles (`singular`) or jumps, by the table's word and by looking.

    What lies outside the reach of inputs and initial parameters, but not of training, is told too, with 0 draws.
    """
    told: set[str] = set()
    wide_grid, wide_draws = (
        100 * grid,
        {n: v if n in function.constants else 100 * v for n, v in draws.items()},
    )
    for part in postorder(function.expr):
        for place in _places(part, kind):
            text = f"{to_text(place)} = 0"
            near = _crosses(function.expr, kind, place, grid, draws)
            if text not in told and (
                near.any() or _crosses(function.expr, kind, place, wide_grid, wide_draws).any()
            ):
                told.add(text)
                yield text, float(near.mean())


def _crosses(expr: Expr, kind: str, place: Expr, grid: Array, draws: Draws) -> Any:
    """For each draw, whether `place` passes through zero, and for a jump, whether F differs on its two sides."""
    values = _values(place, grid, draws)
    sign = np.sign(values)
    finite = np.isfinite(values)
    crosses = ((sign[:, 1:] * sign[:, :-1] <= 0) & finite[:, 1:] & finite[:, :-1]).any(1)
    return crosses & _jumps_at(expr, place, grid, draws) if kind == "jump" and crosses.any() else crosses


def _places(part: Expr, kind: str) -> Iterator[Expr]:
    """Expressions at whose zeros `part` breaks."""
    if not isinstance(part, Call):
        return
    text = getattr(OPS[part.op], kind)
    if text:
        yield substitute(rule(text), dict(zip(ARGUMENTS, part.args, strict=False)))
    exponent = part.args[1] if part.op == "pow" else None
    if kind == "singular" and isinstance(exponent, Number) and exponent.value < 0:
        yield part.args[0]
    if kind == "jump" and part.op == "where" and isinstance(part.args[0], Call):
        left, right = part.args[0].args
        yield left if right is ZERO else call("sub", left, right)


def _jumps_at(expr: Expr, place: Expr, grid: Array, draws: Draws) -> Any:
    """For each draw, whether F differs on the two sides of the first zero of `place`."""
    below = _values(place, grid, draws) < 0
    changes = below[:, 1:] != below[:, :-1]
    low, high = _bisect(place, grid, changes.argmax(1), draws)
    step = 1e-9 * (grid[-1] - grid[0])  # a step aside, so that neither side stands on the place itself
    left = evaluate(expr, {INPUT: low - step, **draws})[:, 0]
    right = evaluate(expr, {INPUT: high + step, **draws})[:, 0]
    scale = np.abs(_values(expr, grid, draws)).max(1)
    with np.errstate(all="ignore"):
        return changes.any(1) & (np.abs(left - right) > 1e-6 * scale)


def _overflow(function: Function, low: float, high: float) -> tuple[str, float] | None:
    """Where F or a derivative leaves float32, looked for at the corners of what inputs and parameters span."""
    axes = {
        INPUT: (low, high, 0.0),
        MEMORY: (-1.0, 1.0),
        **{n: (*pair, sum(pair) / 2) for n, pair in function.init.items()},
    }
    axes |= {n: c for n, c in function.choices.items()}
    axes = {n: values for n, values in axes.items() if n in names(function.expr)}
    if math.prod(len(values) for values in axes.values()) > 200_000:
        axes = {n: values[:2] for n, values in axes.items()}
    corners = np.meshgrid(*(np.asarray(values) for values in axes.values()), indexing="ij")
    points = {n: corner.ravel() for n, corner in zip(axes, corners, strict=True)}
    worst: tuple[str, float] | None = None
    for expr in (function.expr, *(function.slope(name) for name in (INPUT, *function.parameters))):
        # Only growth counts here: at a pole the value is infinite whatever the dtype.
        if any(True for part in postorder(expr) for _ in _places(part, "singular")):
            continue
        size = np.abs(np.broadcast_to(evaluate(expr, points), points[INPUT].shape))
        size = np.where(np.isnan(size), np.inf, size)
        at = int(size.argmax())
        if size[at] > FLOAT32_MAX and (worst is None or size[at] > worst[1]):
            worst = ", ".join(f"{n} = {v[at]:g}" for n, v in points.items()), float(size[at])
    return worst


def _death(function: Function, grid: Array) -> tuple[str, bool]:
    """Parameters near the initial ones, of either sign, for which F is zero everywhere; and whether they still move."""
    reach = {n: max(abs(low), abs(high)) for n, (low, high) in function.init.items()}
    draws = _draws(function, {n: (-r, r) for n, r in reach.items()})
    # Zero whatever the input: also far outside of what inputs are now.
    wide = np.concatenate([grid, 1e3 * grid, [-1e3, 1e3]])
    dead = (_values(function.expr, wide, draws) == 0).all(1)
    if not dead.any():
        return "", False
    one = {n: v[dead][:1] for n, v in draws.items()}
    moves = any(
        np.any(evaluate(function.slope(name), {INPUT: wide, **one}) != 0) for name in function.parameters
    )
    return ", ".join(f"{n} = {one[n][0, 0]:.3g}" for n in (*function.parameters, *function.constants)), bool(
        moves
    )
