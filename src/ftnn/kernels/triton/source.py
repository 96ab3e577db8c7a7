"""Translate expressions into readable sources of Triton kernels. Triton itself is not needed here.

A layer has three kernels. In each, a program owns a block of results and loops over the summed axis, so there
are no atomics and no arrays over (batch, in, out):

    forward       owns (batch, out), loops over the inputs
    by_input      owns (batch) of one input, loops over blocks of outputs
    by_matrices   owns (in, out) of each requested parameter, loops over the samples

Expressions that are constant in the loop are computed before it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ftnn.formula._derive import lower
from ftnn.formula._expr import INPUT, Call, Expr, Number, Symbol, names, postorder, symbol, times
from ftnn.formula._numbers import round32
from ftnn.formula._ops import OPS, is_native
from ftnn.formula._text import to_text
from ftnn.kernels.codegen.target import DType as DType
from ftnn.kernels.program import Program
from ftnn.kernels.triton import templates

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=",
}  # fmt: skip
NATIVE = {
    **{name: f"{{}} {symbol} {{}}" for name, symbol in _INFIX.items()},
    **{f"tl.{name}": f"tl.{name}({{}})" for name in ("exp", "log", "sqrt", "abs", "sin", "cos", "erf")},
    "neg": "-{}",
    "pow": "_pow({}, {})",
    "tl.where": "tl.where({}, {}, {})",
    "tl.minimum": "tl.minimum({}, {}, propagate_nan=tl.PropagateNan.ALL)",
    "tl.maximum": "tl.maximum({}, {}, propagate_nan=tl.PropagateNan.ALL)",
}
"""The text of each native operation, with holes for its arguments."""


def check_spellings() -> None:
    """Raise if the table of operations uses a function that Triton does not have."""
    for op in OPS.values():
        if is_native(op.triton) and op.triton not in NATIVE:
            raise ValueError(f"operation {op.name!r} is spelled {op.triton!r}, which Triton lacks")


check_spellings()

GRADIENT = "∂"
"""The symbol of the gradient at an output. No parameter can have this name."""


def forward(program: Program, dtype: DType) -> str:
    """The source of F ⊙ x."""
    written = _written([program.expr], program, changing=None, dtype=dtype)
    return _module(
        f"F ⊙ x for F = {_formula(program)}, {dtype}.",
        templates.FORWARD,
        written,
        dtype,
        matrices_at=_pointers(program),
        loads=_loads(program, "{0}_at + o", "o < outs", "        "),
        result=written.results[0],
        steps=_block([f"{_matrix(name)}_at += outs" for name in program.matrices], "        "),
    )


def by_input(program: Program, dtype: DType) -> str:
    """The source of Σ_out g · ∂F/∂x."""
    slope = _weighted(program.slopes[INPUT])
    written = _written([slope], program, changing=(*program.matrices, GRADIENT), dtype=dtype)
    return _module(
        f"The gradient by x for F = {_formula(program)}, {dtype}.",
        templates.BY_INPUT,
        written,
        dtype,
        matrices_at=_pointers(program),
        loads=_loads(program, "{0}_at + i * outs + o", "o < outs", "        "),
        result=written.results[0],
    )


def by_matrices(program: Program, parameters: Sequence[str], dtype: DType) -> str:
    """The source of Σ_batch g · ∂F/∂p for each of `parameters`."""
    slopes = [_weighted(program.slopes[name]) for name in parameters]
    written = _written(slopes, program, changing=(INPUT, GRADIENT), dtype=dtype)
    outs = [f"by_{_matrix(name)}" for name in parameters]
    pairs = list(zip(outs, written.results, strict=True))
    return _module(
        f"The gradients by {', '.join(parameters)} for F = {_formula(program)}, {dtype}.",
        templates.BY_MATRICES,
        written,
        dtype,
        matrices_at=_pointers(program),
        outs_at=", ".join(f"{name}_at" for name in outs),
        loads=_loads(program, "{0}_at + i * outs + o", "here", "    "),
        totals=_block([f"{name} = tl.zeros((INS, OUTS), tl.{dtype})" for name in outs], "    "),
        sums=_block([f"{name} += {result}" for name, result in pairs], "        "),
        stores=_block([f"tl.store({n}_at + i * outs + o, {n}, mask=here)" for n in outs], "    "),
    )


def _formula(program: Program) -> str:
    """The formula printed from its expression: the user's own text never gets into code that is executed."""
    return to_text(program.expr)


def _weighted(slope: Expr) -> Expr:
    """g · slope. A selection stays outermost, so that NaN in the branch not taken does not spread."""
    return times(symbol(GRADIENT), slope)


# --- statements ---


class Written:
    """Expressions as assignments, one for each distinct part.

    **Arguments:**

    - `roots`: the expressions.
    - `variables`: the variable that holds each symbol.
    - `changing`: the symbols that the loop loads, None for all. Parts without them go before the loop.
    """

    def __init__(
        self,
        roots: Sequence[Expr],
        variables: Mapping[str, str],
        changing: Collection[str] | None,
        dtype: DType,
    ):
        self.before: list[str] = []
        self.inside: list[str] = []
        self._dtype: DType = dtype
        self._text: dict[Expr, str] = {}
        lowered = [lower(root, "triton") for root in roots]
        for part in postorder(*lowered):
            match part:
                case Number(value):
                    self._text[part] = _literal(value, dtype)
                case Symbol(name):
                    self._text[part] = variables[name]
                case Call():
                    moves = changing is None or not set(changing).isdisjoint(names(part))
                    self._assign(part, self.inside if moves else self.before)
        self.results = [self._as_tensor(root) for root in lowered]

    def _assign(self, part: Call, lines: list[str]) -> None:
        match part:
            case Call("pow", (base, Number(int() as n))) if not isinstance(base, Number) and 2 <= abs(n) <= 8:
                power = " * ".join([self._text[base]] * abs(n))
                line = power if n > 0 else f"1.0 / ({power})"
            case Call(op, args):
                # Numbers alone would get Triton's default dtype, and `_pow` takes tensors only.
                tensors = op in ("pow", "min", "max") or not any(self._is_block(arg) for arg in args)
                if op == "where":
                    tensors = not any(self._is_block(arg) for arg in args[1:])
                values = [self._as_tensor(arg) if tensors else self._text[arg] for arg in args]
                line = NATIVE[OPS[op].triton].format(*values)
        name = f"t{len(self.before) + len(self.inside)}"
        lines.append(f"{name} = {line}")
        self._text[part] = name

    @staticmethod
    def _is_block(part: Expr) -> bool:
        return not isinstance(part, Number)

    def _as_tensor(self, part: Expr) -> str:
        text = self._text[part]
        return text if self._is_block(part) else f"tl.full((1, 1), {text}, tl.{self._dtype})"


def _written(
    roots: Sequence[Expr], program: Program, changing: Collection[str] | None, dtype: DType
) -> Written:
    variables = {INPUT: "x", GRADIENT: "g", **{name: _matrix(name) for name in program.matrices}}
    return Written(roots, variables, changing, dtype)


def _literal(value: int | float, dtype: DType) -> str:
    """A number as a literal of this dtype, infinite if out of range."""
    rounded = round32(value) if dtype == "float32" else float(value)
    if math.isinf(rounded):
        return 'float("inf")' if rounded > 0 else '(-float("inf"))'
    # The shortest text that reads as this number; in parentheses because a minus binds weaker than a power.
    text = str(np.float32(value)) if dtype == "float32" else repr(rounded)
    return f"({text})" if rounded < 0 else text


def _module(title: str, template: str, written: Written, dtype: DType, **holes: str) -> str:
    text = template.format(
        dtype=dtype, before=_block(written.before, "    "), inside=_block(written.inside, "        "), **holes
    )
    head = templates.HEAD.format(title=title)
    power = templates.POW.format(dtype=f"tl.{dtype}") if "_pow(" in text else ""
    return head + power + "\n".join(line for line in text.split("\n") if line != _NOTHING)


_NOTHING = "\0"  # a line to leave out


def _block(lines: Sequence[str], indent: str) -> str:
    return "\n".join(indent + line for line in lines) or _NOTHING


def _matrix(name: str) -> str:
    """The variable of a parameter or constant; prefixed to avoid clashes."""
    return f"m_{name}"


def _pointers(program: Program) -> str:
    return ", ".join(f"{_matrix(name)}_at" for name in program.matrices)


def _loads(program: Program, place: str, mask: str, indent: str) -> str:
    lines = [
        f"{_matrix(name)} = tl.load({place.format(_matrix(name))}, mask={mask}, other=0.0)"
        for name in program.matrices
    ]
    return _block(lines, indent)
