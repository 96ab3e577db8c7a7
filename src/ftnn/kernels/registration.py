"""Register operators with torch's dispatcher, at low cost per call.

Every call goes through the dispatcher, so eager code, compiled graphs and exported ones see the same
operator. Two of torch's conveniences are too slow to use: `custom_op` imports all of `torch._dynamo` at the
first call (more than a second in every process), and `register_autograd` flattens and rebuilds all arguments
several times (0.4 ms per step). A plain `autograd.Function` under the key `Autograd` does the same job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("ftnn", "DEF")
_BELOW: Any = torch._C._after_autograd_keyset
# Under autocast, matrix products would run in half precision, but the layer has already chosen its dtype.
_AUTOCAST: Any = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)


def register(
    schema: str,
    kernel: Callable[..., Any],
    fake: Callable[..., Any],
    autograd: Callable[..., Any],
    *,
    transformed: Callable[..., Any] | None = None,
    decomposition: Callable[..., Any] | None = None,
) -> Any:
    """Register an operator of the library `ftnn` and return it.

    **Arguments:**

    - `schema`: its name, arguments and results.
    - `kernel`: computes it, with gradient recording off.
    - `fake`: returns empty tensors with the shapes of the results.
    - `autograd`: takes the dispatcher's keys, then the operator's arguments. It records a function whose
        forward calls `below`.
    - `transformed`: computes it under `torch.func`'s transforms, in operations they support.
    - `decomposition`: computes it in plain operations, for compilers.
    """
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    op = getattr(torch.ops.ftnn, name).default
    _LIBRARY.impl(name, torch.no_grad()(kernel), "CompositeExplicitAutograd")
    _LIBRARY.impl(name, autograd, "Autograd", with_keyset=True)
    for key in ("AutocastCPU", "AutocastCUDA"):
        _LIBRARY.impl(name, _without_autocast(op), key)
    if transformed is not None:  # runs before functorch looks for rules of the operator
        _LIBRARY.impl(name, transformed, "FuncTorchDynamicLayerFrontMode")
    if decomposition is not None:  # runs after autograd
        op.py_impl(torch._C.DispatchKey.CompositeImplicitAutograd)(decomposition)
    torch.library.register_fake(f"ftnn::{name}", fake, lib=_LIBRARY)
    return op


def below(op: Any, keys: Any, *arguments: Any) -> Any:
    """Call an operator's implementation below autograd."""
    return op.redispatch(keys & _BELOW, *arguments)


def recorded(*tensors: Tensor) -> bool:
    """Whether autograd records operations on these tensors."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def _without_autocast(op: Any) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return op(*arguments)

    return call
