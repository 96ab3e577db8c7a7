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

from ftnn.errors import FormulaError, FtnnError
from ftnn.formula._derive import rule
from ftnn.formula._expr import (
    INPUT,
    MEMORY,
    Call,
    Expr,
    Number,
    folded,
    names,
    postorder,
    substitute,
    written_out,
)
from ftnn.formula._numpy import Array, evaluate, steps
from ftnn.formula._ops import ARGUMENTS, OPS
from ftnn.formula._text import to_text

if TYPE_CHECKING:
    from ftnn.formula._function import Function, Range
    from ftnn.formula._plan import Plan

DRAWS, POINTS, CORNERS = 256, 1025, 20_000
WORK = 400
"""Operations, in all expressions that are looked at, up to which all of these are taken. Beyond, there are
fewer draws and corners, so that a long formula takes as long as a short one."""
MOST_WORK = 4_000
"""Operations in places that are looked at for poles and jumps: with more, the rest are not."""
PRINTED = 10_000
"""Operations, numbers and names of all derivatives that are written out."""
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `Function.explain` found. Fractions are of the drawn parameters; `str()` is for people."""

    function: Function
    x: Range
    derivatives: dict[str, Any]
    """By `x` and each parameter, as SymPy expressions; where there is none, a text says why."""
    plan: Plan
    reaches_zero: float
    """For how many draws F is zero for some input within reach."""
    poles: tuple[tuple[str, float], ...]
    """(where, for how many draws): F is not finite there."""
    jumps: tuple[tuple[str, float], ...]
    """(where, for how many draws): F is not continuous there."""
    overflows: tuple[str, float] | None
    """(an example, largest |value|) where F or a derivative leaves float32 over what inputs and initial
    parameters span."""
    sleeps: float
    """For how many draws F is zero on an interval of inputs, but not for every input whatever."""
    dead: float
    """For how many draws F is zero for every input whatever."""
    can_die: str
    """Parameters within reach of training for which F is zero everywhere; empty if none were found."""
    can_revive: bool
    """Whether a dead connection's parameters still move."""
    unseen: int = 0
    """How many places, of too many, were not looked at for poles and jumps."""

    def __str__(self) -> str:
        lines = list(self.lines())
        width = max(len(label) for label, _ in lines)
        return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)

    def lines(self) -> Iterator[tuple[str, str]]:
        """(label, text), in the order of reading."""
        low, high = self.x
        function = self.function
        yield "F(x)", function.formula
        yield "parameters", ", ".join(f"{n} in [{a:g}, {b:g}]" for n, (a, b) in function.init.items())
        if function.constants:
            drawn = {name: ", ".join(f"{v:g}" for v in values) for name, values in function.choices.items()}
            yield "constants", ", ".join(f"{name} in {{{values}}}" for name, values in drawn.items())
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
                beyond = (
                    f"beyond x in [{low:g}, {high:g}] and the initial parameters, but not beyond training"
                )
                yield label, f"where {place}, {_share(share) if share else beyond}"
        if self.unseen:
            yield (
                "not seen",
                f"{self.unseen} more places that may be poles or jumps: too many to look at",
            )
        if self.overflows:
            example, size = self.overflows
            yield "overflow", f"leaves float32 (|value| up to {size:.3g}), for example at {example}"
        if self.sleeps:
            yield "sleep", f"zero on an interval of inputs, {_share(self.sleeps)}"
        if self.dead:
            yield "dead", f"zero for every input, {_share(self.dead)}"
        if self.can_die:
            fate = "can revive: its parameters still move" if self.can_revive else "then never moves again"
            yield "can die", f"at {self.can_die} it is zero for every input, and {fate}"


def _share(fraction: float) -> str:
    how_many = "every draw" if fraction >= 1 else f"{max(fraction, 0.01):.0%} of the draws"
    return f"for {how_many} of its parameters"


def explain(function: Function, x: Range) -> Explanation:
    """Look at `function` over the inputs `x` = (low, high)."""
    try:
        low, high = (float(bound) for bound in x)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise FormulaError(
            f"the range of inputs must be (low, high), finite and low < high, not {x!r}",
            text=function.formula,
            end=len(function.formula),
        )
    places, unseen = _all_places(function.expr)
    seen = [*places["singular"], *places["jump"], *(function.expr,) * 4]
    count = _fewer(DRAWS, sum(len(steps(expr)) for expr in seen))
    draws = _draws(function, function.init, count)
    grid = np.linspace(low, high, POINTS)
    values = _values(function.expr, grid, draws)
    zero = values == 0
    dead = _is_dead(function.expr, grid, draws)
    can_die, can_revive = _death(function, grid, count)
    return Explanation(
        function,
        (low, high),
        _derivatives(function),
        function.plan,
        float(_reach_zero(function.expr, grid, draws, values).mean()),
        tuple(_breaks(function, "singular", places["singular"], grid, draws)),
        tuple(_breaks(function, "jump", places["jump"], grid, draws)),
        _overflow(function, low, high),
        float(((_longest_run(zero) >= 3) & ~dead).mean()),
        float(dead.mean()),
        can_die,
        can_revive,
        unseen,
    )


def _fewer(most: int, work: int) -> int:
    """How many of `most` to take for so many operations."""
    return max(most // 16, min(most, most * WORK // work))


def _derivatives(function: Function) -> dict[str, Any]:
    left = PRINTED
    found: dict[str, Any] = {}
    for name in (INPUT, *function.parameters):
        size = written_out(function.slope(name))
        try:
            if size > left:
                raise FtnnError(f"too large to be written out beside the others: {size:,} operations")
            found[name] = function.derivative(name)
            left -= size
        except FtnnError as error:
            found[name] = str(error)
    return found


def is_finite_at_zero(function: Function) -> bool:
    """Whether F(0), computed as it is written, is finite wherever the parameters start."""
    draws = _draws(function, function.init, DRAWS)
    return bool(np.isfinite(_values(function.expr, np.zeros(1), draws)).all())


Draws = dict[str, Array]


def _draws(function: Function, ranges: dict[str, Range], count: int) -> Draws:
    """Parameters, constants and memory, each (count, 1): always the same ones."""
    random = np.random.default_rng(0)
    # Open intervals: p = 0 happens to nobody, but would make any p*f(x) reach zero.
    drawn = {n: low + (high - low) * random.uniform(1e-9, 1, (count, 1)) for n, (low, high) in ranges.items()}
    drawn |= {n: random.choice(np.asarray(c), (count, 1)) for n, c in function.choices.items()}
    return drawn | {MEMORY: random.uniform(-1, 1, (count, 1))}


def _values(expr: Expr, x: Array, draws: Draws) -> Array:
    """(draws, points), of points (points,) or (draws, points)."""
    shape = (len(draws[MEMORY]), x.shape[-1])
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
    low, _ = _bisect(expr, grid, first, draws)
    left = np.abs(_values(expr, low, draws))[:, 0]
    return changes.any(1) & (left < 1e-6 * ends.min(1))


def _bisect(expr: Expr, grid: Array, first: Any, draws: Draws) -> tuple[Array, Array]:
    """The two sides, (draws, 1) each, of the place in [grid[first], grid[first + 1]] of a change of sign."""
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
    scale = _largest(_values(expr, beside, draws))
    smallest = scale
    for _ in range(6):
        near = np.clip(centre + width * np.linspace(-1, 1, 65), grid[0], grid[-1])
        found = np.abs(_values(expr, near, draws))
        found = np.where(np.isfinite(found), found, np.inf)
        best = found.argmin(1)[:, None]
        smallest = np.take_along_axis(found, best, 1)[:, 0]
        centre = np.take_along_axis(near, best, 1)
        width /= 32
    return smallest < 1e-12 * scale


def _largest(values: Array) -> Any:
    """The largest finite size in each row; 0 if there is none."""
    return np.where(np.isfinite(values), np.abs(values), 0.0).max(1)


def _all_places(expr: Expr) -> tuple[dict[str, list[Expr]], int]:
    """The places at which F may have a pole ("singular") or jump, up to `MOST_WORK`; and how many more."""
    found: dict[str, list[Expr]] = {}
    work = unseen = 0
    for kind in ("singular", "jump"):
        every = dict.fromkeys(place for part in postorder(expr) for place in _places(part, kind))
        found[kind] = []
        for place in every:
            work += len(steps(place)) + (len(steps(expr)) if kind == "jump" else 0)
            if work <= MOST_WORK:
                found[kind].append(place)
            else:
                unseen += 1
    return found, unseen


def _breaks(
    function: Function, kind: str, places: list[Expr], grid: Array, draws: Draws
) -> Iterator[tuple[str, float]]:
    """(where, for how many draws) F has poles (`singular`) or jumps, by the table's word and by looking.

    What lies outside the reach of inputs and initial parameters, but not of training, is told too, with 0
    draws.
    """
    wide_grid = 100 * grid
    wide_draws = {n: v if n in function.constants else 100 * v for n, v in draws.items()}
    for place in places:
        near = _crosses(function.expr, kind, place, grid, draws)
        if near.any() or _crosses(function.expr, kind, place, wide_grid, wide_draws).any():
            yield f"{to_text(place)} = 0", float(near.mean())


def _crosses(expr: Expr, kind: str, place: Expr, grid: Array, draws: Draws) -> Any:
    """For each draw, whether `place` is zero somewhere; for a jump, whether F differs on its two sides."""
    if kind == "jump":
        return _jumps_at(expr, place, grid, draws)
    return _reach_zero(place, grid, draws, _values(place, grid, draws))


def _places(part: Expr, kind: str) -> Iterator[Expr]:
    """Expressions at whose zeros `part` breaks."""
    if not isinstance(part, Call):
        return
    text = getattr(OPS[part.op], kind)
    if text:
        place = substitute(rule(text), dict(zip(ARGUMENTS, part.args, strict=False)))
        if not isinstance(place, Number) or place.value == 0:
            yield place
    if kind == "jump" and part.op == "where" and isinstance(part.args[0], Call):
        left, right = part.args[0].args
        yield folded("sub", left, right)


def _jumps_at(expr: Expr, place: Expr, grid: Array, draws: Draws) -> Any:
    """For each draw, whether F differs on the two sides of the first zero of `place`."""
    below = _values(place, grid, draws) < 0
    changes = below[:, 1:] != below[:, :-1]
    if not changes.any():
        return changes.any(1)
    low, high = _bisect(place, grid, changes.argmax(1), draws)

    def apart(step: float) -> Any:
        """How much F differs, so far aside that neither side stands on the place itself."""
        aside = step * (grid[-1] - grid[0]) * np.array([-1, 1])
        sides = _values(expr, np.concatenate([low, high], 1) + aside, draws)
        with np.errstate(all="ignore"):
            return np.abs(sides[:, 1] - sides[:, 0])

    near, far = apart(1e-9), apart(1e-6)
    # A steep slope (that of a root) differs less and less; a jump does not.
    return changes.any(1) & (near > 1e-6 * _largest(_values(expr, grid, draws))) & (near > 0.9 * far)


def _overflow(function: Function, low: float, high: float) -> tuple[str, float] | None:
    """Where F or a derivative leaves float32, at the corners of what inputs and parameters span."""
    axes: dict[str, tuple[float, ...]] = {
        INPUT: (low, high, 0.0),
        MEMORY: (-1.0, 1.0),
        **{n: (*pair, sum(pair) / 2) for n, pair in function.init.items()},
        **function.choices,
    }
    axes = {n: values for n, values in axes.items() if n == INPUT or n in names(function.expr)}
    looked_at = [function.expr, *(function.slope(name) for name in (INPUT, *function.parameters))]
    most = _fewer(CORNERS, sum(len(steps(expr)) for expr in looked_at))
    if math.prod(len(values) for values in axes.values()) > most:  # too many: some of them
        random = np.random.default_rng(0)
        points = {n: random.choice(np.asarray(values), most) for n, values in axes.items()}
    else:
        corners = np.meshgrid(*(np.asarray(values) for values in axes.values()), indexing="ij")
        points = {n: corner.ravel() for n, corner in zip(axes, corners, strict=True)}
    known: dict[Expr, Array] = {}
    worst: tuple[str, float] | None = None
    for expr in looked_at:
        size = _growth(expr, points, known)
        at = int(size.argmax())
        if size[at] > FLOAT32_MAX and (worst is None or size[at] > worst[1]):
            worst = ", ".join(f"{n} = {v[at]:g}" for n, v in points.items()), float(size[at])
    return worst


def _wide(grid: Array) -> Array:
    """The inputs, and others far outside of what they are now."""
    return np.concatenate([grid, 1e3 * grid, [-1e3, 1e3]])


def _is_dead(expr: Expr, grid: Array, draws: Draws) -> Any:
    """For each draw, whether F is zero whatever the input."""
    wide = _wide(grid)
    dead = (_values(expr, wide[::128], draws) == 0).all(1)
    return (_values(expr, wide, draws) == 0).all(1) if dead.any() else dead


def _growth(expr: Expr, points: dict[str, Array], known: dict[Expr, Array]) -> Array:
    """The size of `expr`, infinite where it overflows; 0 where another reason makes it infinite or NaN.

    `known` keeps the values of parts that many expressions share.
    """

    def at(part: Expr) -> Array:
        if part not in known:
            known[part] = evaluate(part, points)
        return known[part]

    size = np.abs(np.broadcast_to(evaluate(expr, points), points[INPUT].shape))
    parts = [part for part in postorder(expr) if isinstance(part, Call)]
    if np.isnan(size).any():  # inf - inf is growth, log(-1) is not
        grown = np.zeros(size.shape, dtype=bool)
        for part in parts:
            if part.op in ("exp", "sinh", "cosh", "pow"):
                grown |= np.isinf(at(part))
        size = np.where(np.isnan(size), np.where(grown, np.inf, 0.0), size)
    for place in dict.fromkeys(place for part in parts for place in _places(part, "singular")):
        size = np.where(np.abs(at(place)) > 1e-12, size, 0.0)  # a pole, whatever the dtype
    return size


def _death(function: Function, grid: Array, count: int) -> tuple[str, bool]:
    """Parameters near the initial ones, of either sign, for which F is zero everywhere; whether they move."""
    reach = {n: max(abs(low), abs(high)) for n, (low, high) in function.init.items()}
    draws = _draws(function, {n: (-r, r) for n, r in reach.items()}, count)
    dead = _is_dead(function.expr, grid, draws)
    if not dead.any():
        return "", False
    one = {n: v[dead][:1] for n, v in draws.items()}
    moves = any(
        np.any(evaluate(function.slope(name), {INPUT: _wide(grid), **one}) != 0)
        for name in function.parameters
    )
    example = ", ".join(f"{n} = {one[n][0, 0]:.3g}" for n in (*function.parameters, *function.constants))
    return example, bool(moves)
