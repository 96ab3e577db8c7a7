"""How operators are registered with torch: through its dispatcher, at little cost.

Every call goes through the dispatcher, so that eager code, compiled graphs and exported ones see the same
operator. Two of torch's conveniences are left out because of their cost: `custom_op` imports all of
`torch._dynamo` at the first call (more than a second in every process), and `register_autograd` flattens and
rebuilds all arguments several times (0.4 ms per step). A plain `autograd.Function` under the key `Autograd`
does the same work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("ftnn", "DEF")
_BELOW: Any = torch._C._after_autograd_keyset
# Matrix products would run in half precision under autocast. A layer has chosen its dtype already.
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
    """Make an operator of the library `ftnn`, and return it.

    **Arguments:**

    - `schema`: its name, what it takes and what it returns.
    - `kernel`: computes it; nothing it does is recorded.
    - `fake`: returns tensors without data that have the results' shapes.
    - `autograd`: takes the dispatcher's keys, then the operator's arguments. It records a function whose
        forward calls `below`.
    - `transformed`: computes it under `torch.func`'s transforms, in operations that these know.
    - `decomposition`: computes it in plain operations, for compilers.
    """
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    op = getattr(torch.ops.ftnn, name).default
    _LIBRARY.impl(name, _unrecorded(kernel), "CompositeExplicitAutograd")
    _LIBRARY.impl(name, autograd, "Autograd", with_keyset=True)
    for key in ("AutocastCPU", "AutocastCUDA"):
        _LIBRARY.impl(name, _without_autocast(op), key)
    if transformed is not None:  # before functorch asks the operator for rules
        _LIBRARY.impl(name, transformed, "FuncTorchDynamicLayerFrontMode")
    if decomposition is not None:  # once autograd has been through
        op.py_impl(torch._C.DispatchKey.CompositeImplicitAutograd)(decomposition)
    torch.library.register_fake(f"ftnn::{name}", fake, lib=_LIBRARY)
    return op


def below(op: Any, keys: Any, *arguments: Any) -> Any:
    """Call an operator past its autograd."""
    return op.redispatch(keys & _BELOW, *arguments)


def recorded(*tensors: Tensor) -> bool:
    """Whether autograd records what is done with these."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def _unrecorded(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def unrecorded(*arguments: Any) -> Any:
        with torch.no_grad():
            return kernel(*arguments)

    return unrecorded


def _without_autocast(op: Any) -> Callable[..., Any]:
    def without(*arguments: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return op(*arguments)

    return without
