"""Expressions → vector instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from llvmlite import ir

from ftnn.formula._expr import Call, Expr, Number, Symbol
from ftnn.formula._ops import OPS, is_native
from ftnn.kernels.codegen.math.table import FUNCTIONS
from ftnn.kernels.codegen.math.trig import ALONE
from ftnn.kernels.codegen.vectors import Vectors


def check_spellings() -> None:
    """Raise if the table of operations names a vector function that does not exist."""
    for op in OPS.values():
        if is_native(op.llvm) and op.llvm not in FUNCTIONS and op.llvm not in _BASIC:
            raise ValueError(
                f"operation {op.name!r} names the vector function {op.llvm!r}, which does not exist"
            )


class Emitter:
    """Evaluates expressions at the builder's position, given the values of some of their parts."""

    def __init__(self, v: Vectors, known: dict[Expr, ir.Value]):
        self.v = v
        self.known = known

    def also(self, more: dict[Expr, ir.Value]) -> Emitter:
        """An emitter that knows more values."""
        return Emitter(self.v, self.known | more)

    def evaluate(self, *roots: Expr) -> list[ir.Value]:
        """The values of `roots`; common parts are evaluated once."""
        values = dict(self.known)
        order = list(_needed(roots, values))
        waves = {(_spelling(part), part.args[0]) for part in order if isinstance(part, Call)}

        def value(part: Expr) -> ir.Value:
            if part not in values:
                # Only products are deferred, so that they can become part of a fused multiply-add.
                assert isinstance(part, Call)
                values[part] = self.v.mul(value(part.args[0]), value(part.args[1]))
            return values[part]

        for part in order:
            match part:
                case Number(constant):
                    values[part] = self.v.const(float(constant))
                case Symbol(name):
                    raise AssertionError(f"no value for {name}")
                case Call("pow", (base, Number(int() as exponent))):
                    values[part] = FUNCTIONS["powi"](self.v, value(base), exponent)
                case Call(_, args):
                    spelling = _spelling(part)
                    if spelling in ("add", "sub"):
                        values[part] = self._sum(spelling == "sub", args[0], args[1], value, values)
                    elif spelling in ALONE and (_OTHER_WAVE[spelling], args[0]) not in waves:
                        values[part] = ALONE[spelling](self.v, value(args[0]))
                    elif spelling != "mul":
                        function = _BASIC.get(spelling) or FUNCTIONS[spelling]
                        values[part] = function(self.v, *map(value, args))
        return [value(root) for root in roots]

    def _sum(
        self,
        minus: bool,
        a: Expr,
        b: Expr,
        value: Callable[[Expr], ir.Value],
        values: dict[Expr, ir.Value],
    ) -> ir.Value:
        """a ± b, as a fused multiply-add if one of them is a deferred product."""
        v = self.v
        if isinstance(b, Call) and b not in values:
            first = value(b.args[0])
            return v.fma(v.neg(first) if minus else first, value(b.args[1]), value(a))
        if isinstance(a, Call) and a not in values:
            return v.fma(value(a.args[0]), value(a.args[1]), v.neg(value(b)) if minus else value(b))
        return v.sub(value(a), value(b)) if minus else v.add(value(a), value(b))


_OTHER_WAVE = {"sin": "cos", "cos": "sin"}


def _spelling(part: Call) -> str:
    return OPS[part.op].llvm


def _needed(roots: Sequence[Expr], values: dict[Expr, ir.Value]) -> Iterable[Expr]:
    """The parts to compute for `roots`, arguments first."""
    seen = set(values)
    stack: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        part, ready = stack.pop()
        if part in seen:
            continue
        if ready or not isinstance(part, Call):
            seen.add(part)
            yield part
        else:
            stack.append((part, True))
            stack.extend((arg, False) for arg in reversed(part.args))


_BASIC: dict[str, Callable[..., ir.Value]] = {
    "add": Vectors.add,
    "sub": Vectors.sub,
    "mul": Vectors.mul,
    "div": Vectors.div,
    "neg": Vectors.neg,
    "abs": Vectors.abs,
    "sqrt": Vectors.sqrt,
    "minimum": Vectors.minimum,
    "maximum": Vectors.maximum,
    "where": Vectors.select,
    "lt": Vectors.lt,
    "le": Vectors.le,
    "gt": Vectors.gt,
    "ge": Vectors.ge,
    "eq": Vectors.eq,
    "ne": Vectors.ne,
}


check_spellings()
