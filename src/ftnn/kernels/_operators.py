"""How the operators are registered with torch: through its dispatcher, at little price.

Every call goes through the dispatcher, so that eager code, compiled graphs and exported ones see the same
operator. Two of torch's conveniences are left out for their price: `custom_op` imports the whole of
`torch._dynamo` at the first call (more than a second of every process), and `register_autograd` flattens and
rebuilds all arguments several times (0.4 ms of each step). A plain `autograd.Function` under the key
`Autograd` does the same work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("ftnn", "DEF")
_BELOW: Any = torch._C._after_autograd_keyset
# Kernels multiply matrices, which autocast would do in half precision. A layer has chosen its dtype already.
_AUTOCAST: Any = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)


def register(
    schema: str,
    kernel: Callable[..., Any],
    fake: Callable[..., Any],
    autograd: Callable[..., Any] | None = None,
) -> None:
    """Make an operator of the library `ftnn`.

    **Arguments:**

    - `schema`: its name, what it takes and what it gives.
    - `kernel`: computes it; nothing it does is recorded.
    - `fake`: what has the result's shape, of tensors without data.
    - `autograd`: takes the dispatcher's keys, then what the operator takes. It records a function whose
        forward calls `below`. Without it, nothing is recorded.
    """
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, _unrecorded(kernel), "CompositeExplicitAutograd")
    if autograd is not None:
        _LIBRARY.impl(name, autograd, "Autograd", with_keyset=True)
    op = getattr(torch.ops.ftnn, name).default
    for key in ("AutocastCPU", "AutocastCUDA"):
        _LIBRARY.impl(name, _without_autocast(op), key)
    torch.library.register_fake(f"ftnn::{name}", fake, lib=_LIBRARY)


def below(op: Any, keys: Any, *arguments: Any) -> Any:
    """Call an operator past its autograd."""
    return op.redispatch(keys & _BELOW, *arguments)


def recorded(*tensors: Tensor) -> bool:
    """Whether autograd wants to know what is done with these."""
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
