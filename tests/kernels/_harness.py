"""Compile and run what `Vectors` emits, as `out[i] = f(in[i], ...)`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from ftnn.kernels.codegen.target import DType, Target
from ftnn.kernels.codegen.vectors import Vectors

F32, F64 = NDArray[np.float32], NDArray[np.float64]

Emit = Callable[[Vectors, ir.Value], Any] | Callable[[Vectors, ir.Value, ir.Value], Any]
"""Emits a value, or a sequence of values, from one or two vectors."""


@dataclass(frozen=True)
class Compiled:
    """Machine code for arrays of any length, and its IR."""

    call: Callable[..., Any]
    code: str

    def __call__(self, *arrays: NDArray[Any]) -> Any:
        return self.call(*arrays)


def module_of(
    emit: Emit, dtype: DType, lanes: int, arity: int = 1, results: int = 1, quick_reciprocal: bool = False
) -> ir.Module:
    """A module with `void map(out0, ..., in0, ..., n)`, pointers except for n, which loops over vectors."""
    module = ir.Module("test")
    pointer, i64 = ir.PointerType(), ir.IntType(64)
    kind = ir.FunctionType(ir.VoidType(), [pointer] * (results + arity) + [i64])
    function = ir.Function(module, kind, "map")
    for argument in function.args[:-1]:
        argument.add_attribute("noalias")
    entry, loop, end = map(function.append_basic_block, ("entry", "loop", "end"))
    b = ir.IRBuilder(entry)
    v = Vectors(b, Target(dtype, lanes, quick_reciprocal))
    b.branch(loop)
    b.position_at_end(loop)
    index = b.phi(i64)
    index.add_incoming(ir.Constant(i64, 0), entry)
    size = v.bits // 8
    with v.scope():
        places = [b.gep(p, [index], source_etype=v.scalar) for p in function.args[:-1]]
        inputs = [b.load(place, align=size, typ=v.type) for place in places[results:]]
        emitted: Any = emit(v, *inputs)
        outputs = list(emitted) if isinstance(emitted, Sequence) else [emitted]
        for place, output in zip(places[:results], outputs, strict=True):
            b.store(output, place, align=size)
    following: Any = b.add(index, ir.Constant(i64, lanes))
    index.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, function.args[-1]), loop, end)
    b.position_at_end(end)
    b.ret_void()
    return module


def compile_map(
    emit: Emit,
    dtype: DType = "float32",
    lanes: int = 8,
    arity: int = 1,
    results: int = 1,
    quick_reciprocal: bool = False,
) -> Compiled:
    """`emit(v, *inputs)` as a function of NumPy arrays."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=2)
    code = str(module_of(emit, dtype, lanes, arity, results, quick_reciprocal))
    parsed = llvm.parse_assembly(code)
    parsed.verify()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes.getModulePassManager().run(parsed, passes)
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    pointers = [ctypes.c_void_p] * (results + arity)
    function = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(engine.get_function_address("map"))
    number = np.dtype(dtype)

    def call(*arrays: NDArray[Any]) -> Any:
        assert engine  # the code lives as long as the engine
        count = len(arrays[0])
        padded = -(-max(count, 1) // lanes) * lanes
        inputs = [np.zeros(padded, number) for _ in range(arity)]
        with np.errstate(invalid="ignore"):  # some NaN are signaling
            for whole, array in zip(inputs, arrays, strict=True):
                whole[:count] = array
        outputs = [np.empty(padded, number) for _ in range(results)]
        function(*(a.ctypes.data for a in (*outputs, *inputs)), padded)
        return outputs[0][:count] if results == 1 else tuple(a[:count] for a in outputs)

    return Compiled(call, code)


def libm(v: Vectors, name: str, *operands: ir.Value) -> ir.Value:
    """The C library's float64 function `name`, called for each lane."""
    function = v.external(name, v.scalar, *(v.scalar for _ in operands))
    result: ir.Value = ir.Constant(v.type, ir.Undefined)
    for i in range(v.lanes):
        lane = ir.Constant(ir.IntType(32), i)
        arguments = [v.builder.extract_element(a, lane) for a in operands]
        result = v.builder.insert_element(result, v.builder.call(function, arguments), lane)
    return result


def ulps(got: F32, true: F64) -> F64:
    """The error in units in the last place of the true value; infinite where inf or NaN differ."""
    with np.errstate(all="ignore"):
        rounded = true.astype(np.float32)
        unit = np.ldexp(1.0, np.maximum(np.frexp(true)[1] - 24, -149))
        distance = np.abs(got - true) / unit
    special = ~np.isfinite(rounded) | ~np.isfinite(got)
    same = (rounded == got) | (np.isnan(rounded) & np.isnan(got))
    return np.where(special, np.where(same, 0.0, np.inf), distance)
