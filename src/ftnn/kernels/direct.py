"""The transfer computation in ordinary eager code: the operator's work without torch's dispatcher.

Two trips through the dispatcher into Python and back cost as much as a small layer. They are needed only
where somebody watches or changes operations: compilers, tracers, modes, transforms, autocast, subclasses.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from ftnn.formula._expr import INPUT
from ftnn.kernels.backends import Backend, compute, compute_backward
from ftnn.kernels.operands import Kept, Matrices
from ftnn.kernels.program import Program, signature
from ftnn.kernels.registration import recorded

_C: Any = torch._C


def _key_set(*names: str) -> int:
    total = _C.DispatchKeySet(getattr(_C.DispatchKey, names[0]))
    for name in names[1:]:
        total |= _C.DispatchKeySet(getattr(_C.DispatchKey, name))
    return total.raw_repr()


_MODES = (_key_set("BackendSelect", "ADInplaceOrView"), _key_set("BackendSelect"))
"""What the dispatcher looks at in eager code with no mode active, and in inference mode."""
with torch.inference_mode():
    _IN_INFERENCE_MODE = torch.zeros(0, device="cpu")
_KINDS = frozenset(
    _C._dispatch_keys(tensor).raw_repr() for tensor in (torch.zeros(0, device="cpu"), _IN_INFERENCE_MODE)
)
"""The keys of ordinary CPU tensors: dense, and neither wrapped nor lazily conjugated or negated."""
_TYPES = (Tensor, nn.Parameter)
_DTYPES = (torch.float32, torch.float64)


def is_plain(*tensors: Tensor) -> bool:
    """Whether these are ordinary CPU tensors, and nothing watches or changes operations on them."""
    if _C._dispatch_tls_local_include_set().raw_repr() not in _MODES or _C._is_any_autocast_enabled():
        return False
    if forward_ad._current_level >= 0:
        return False
    for tensor in tensors:
        if type(tensor) not in _TYPES or _C._dispatch_keys(tensor).raw_repr() not in _KINDS:
            return False
    return True


def fits(program: Program, x: Tensor, matrices: Matrices, bias: Tensor | None) -> bool:
    """Whether the tensors agree in shape and dtype. If not, the operator says what is wrong."""
    dtype, shape = x.dtype, matrices[0].shape
    if dtype not in _DTYPES or len(matrices) != len(program.matrices):
        return False
    for matrix in matrices:
        if matrix.dtype is not dtype or matrix.shape != shape:
            return False
    if bias is not None and (bias.dtype is not dtype or bias.shape != shape[1:]):
        return False
    return x.dim() == 2 == len(shape) and shape[0] == x.shape[1]


class _Direct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, program: Program, backend: Backend, bias: Tensor | None, x: Tensor, *matrices: Tensor
    ) -> Tensor:
        kept = Kept()
        out = compute(backend, program, x, matrices, None, kept)
        ctx.save_for_backward(x, *matrices, *kept.tensors)
        ctx.program, ctx.backend, ctx.module, ctx.notes = program, backend, kept.module, kept.notes
        return out if bias is None else out.add_(bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (grad,), (x, *saved) = grads, ctx.saved_tensors
        program, backend, needed = ctx.program, ctx.backend, ctx.needs_input_grad
        count = len(program.matrices)
        matrices, names = saved[:count], _names(program, needed[3:])
        if torch.is_grad_enabled() or not is_plain(grad):
            # Differentiated again, or watched.
            text = (*signature(program.function), backend, " ".join(names))
            slopes = torch.ops.ftnn.transfer_backward.default(grad, x, matrices, [], *text)
        else:
            kept = Kept(ctx.module, saved[count:], ctx.notes)
            slopes = compute_backward(backend, program, grad, x, matrices, names, None, kept)
        by_name = dict(zip(names, slopes, strict=True))
        by_bias = grad.sum(0) if needed[2] else None
        return None, None, by_bias, by_name.get(INPUT), *map(by_name.get, program.matrices)


@lru_cache(maxsize=1024)
def _names(program: Program, needed: tuple[bool, ...]) -> tuple[str, ...]:
    """What to differentiate by, given whether x and each matrix need a gradient."""
    by_name = dict(zip((INPUT, *program.matrices), needed, strict=True))
    return tuple(name for name in program.differentiable if by_name[name])


def direct_transfer(
    program: Program, x: Tensor, matrices: Matrices, backend: Backend, bias: Tensor | None
) -> Tensor:
    """F ⊙ x + bias, (batch, out), for tensors that are plain and fit."""
    if recorded(x, *matrices) or (bias is not None and recorded(bias)):
        return cast(Tensor, _Direct.apply(program, backend, bias, x, *matrices))
    out = compute(backend, program, x, matrices)
    return out if bias is None else out.add_(bias)
