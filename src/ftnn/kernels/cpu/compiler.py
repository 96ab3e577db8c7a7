"""LLVM IR → machine code, cached under a content hash.

For each kernel, the cache holds its machine code and, for people, its IR as text. The key covers the IR, the
compiler's versions and flags, and the CPU, so an entry can be missing but never wrong. Entries are written
atomically, and damaged ones are rebuilt. See `cache.py` for who may write them.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import torch
from torch import Tensor

from ftnn.kernels.codegen.target import DType, Target
from ftnn.kernels.cpu import cache

OPTIMISATION = 2
MAX_SELECTS = 500
"""The most selections in a module that LLVM may simplify. This takes time quadratic in their number: 4 s for
1,800 of them, against 0.2 s to compile them unsimplified."""
_FEATURES = "-prefer-256-bit"  # we choose the width of vectors, not LLVM


@dataclass(frozen=True)
class Code:
    """A compiled kernel."""

    key: str
    text: str
    """Its LLVM IR."""
    address: int
    _alive: Any = field(repr=False)
    """The engine, which keeps the code alive."""

    @property
    def function(self) -> Any:
        """A function of an address, which keeps the code alive."""
        function: Any = _prototype()(self.address)
        function.code = self
        return function

    def __call__(self, args: Sequence[int]) -> None:
        """Run it on sizes and addresses, with the interpreter's lock released."""
        _prototype()(self.address)((ctypes.c_int64 * len(args))(*args))


@functools.cache
def _prototype() -> Any:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@functools.cache
def _target() -> llvm.Target:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple()


@functools.cache
def _machine() -> llvm.TargetMachine:
    """LLVM set up to compile for this CPU."""
    features = ",".join((llvm.get_host_cpu_features().flatten(), _FEATURES))
    return _target().create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=OPTIMISATION)


@functools.cache
def host(dtype: DType) -> Target:
    """This CPU's vectors of `dtype`."""
    features = llvm.get_host_cpu_features()
    width = 64 if features.get("avx512f") else 32 if features.get("avx") else 16
    lanes = width // (8 if dtype == "float64" else 4)
    return Target(dtype, lanes, quick_reciprocal=width == 64)


def host_of(x: Tensor) -> Target:
    """This CPU's vectors of the dtype of `x`."""
    return host("float64" if x.dtype == torch.float64 else "float32")


_lock = threading.Lock()
_compiled: dict[str, Code] = {}


def compiled(text: str) -> Code:
    """The machine code of a module with a function `kernel`: from memory, the cache, or compiled now."""
    key = _key(text)
    with _lock:
        code = _compiled.get(key)
        if code is None:
            code = _compiled[key] = _load(key, text)
        return code


@functools.lru_cache(maxsize=1024)
def kernel(template: Callable[..., str], *arguments: Hashable, **options: Hashable) -> Code:
    """The machine code of the kernel that a template generates."""
    return compiled(template(*arguments, **options))


def _key(text: str) -> str:
    parts = (
        text,
        llvmlite.__version__,
        str(llvm.llvm_version_info),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
        _FEATURES,
        str(OPTIMISATION),
        llvm.get_default_triple(),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _load(key: str, text: str) -> Code:
    machine_code = cache.read(f"{key}.o")
    if machine_code is None:
        machine_code = _build(text)
        cache.write(f"{key}.o", machine_code, readable=(f"{key}.ll", text.encode()))
    # An engine takes ownership of its target machine. It only links, so a plain machine is enough.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target().create_target_machine(jit=True))
    engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
    engine.finalize_object()
    return Code(key, text, engine.get_function_address("kernel"), engine)


def _build(text: str) -> bytes:
    module = llvm.parse_assembly(text)
    module.verify()
    if text.count(" select ") <= MAX_SELECTS:
        options = llvm.create_pipeline_tuning_options(speed_level=1)
        passes = llvm.create_pass_builder(_machine(), options)
        passes.getModulePassManager().run(module, passes)
    return _machine().emit_object(module)
