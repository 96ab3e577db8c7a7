"""The C library's functions, called lane by lane: used for float64."""

from __future__ import annotations

from llvmlite import ir

from ftnn.kernels.codegen.vectors import Vectors


def libm(v: Vectors, name: str, *operands: ir.Value) -> ir.Value:
    """The float64 function `name` of the C library, called for each lane."""

    def emit() -> ir.Value:
        function = v.external(name, v.scalar, *(v.scalar for _ in operands))
        result: ir.Value = ir.Constant(v.type, ir.Undefined)
        for i in range(v.lanes):
            lane = ir.Constant(ir.IntType(32), i)
            arguments = [v.builder.extract_element(a, lane) for a in operands]
            result = v.builder.insert_element(result, v.builder.call(function, arguments), lane)
        return result

    return v.once(f"libm {name}", operands, emit)
