"""When two expressions are the same function: they are equal up to the order of operands."""

from __future__ import annotations

from collections.abc import Mapping

from ftnn.formula._expr import Call, Expr, Number, Symbol, call, postorder


def canonical(expr: Expr) -> Expr:
    """`expr` with the operands of sums, products, min and max sorted, and nothing else changed.

    Functions are compared by this: `x*p` equals `p*x`, but `p*(x + 1)` does not equal `p*x + p`.
    """
    sorted_parts: dict[Expr, Expr] = {}
    sort_keys: dict[Expr, str] = {}
    for part in postorder(expr):
        new = part
        if isinstance(part, Call):
            args = [sorted_parts[arg] for arg in part.args]
            if part.op in ("add", "mul", "min", "max"):
                args = [operand for arg in args for operand in _operands(arg, part.op)]
                args.sort(key=lambda operand: sort_keys[operand])
            new = call(part.op, *args)
        sorted_parts[part] = new
        sort_keys[new] = _sort_key(new, sort_keys)
    return sorted_parts[expr]


def _operands(expr: Expr, op: str) -> tuple[Expr, ...]:
    return expr.args if isinstance(expr, Call) and expr.op == op else (expr,)


def _sort_key(expr: Expr, sort_keys: Mapping[Expr, str]) -> str:
    match expr:
        case Number(value):
            return f"0 {value!r}"
        case Symbol(name):
            return f"1 {name}"
        case Call(op, args):
            return f"2 {op}({','.join(sort_keys[arg] for arg in args)})"
