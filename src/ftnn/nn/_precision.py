"""The precision in which a layer computes: under autocast, and with half-precision parameters."""

from __future__ import annotations

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)
DTYPES = (*HALF, torch.float32, torch.float64)
"""The dtypes of layers."""


def autocast_dtype(x: Tensor, own: torch.dtype) -> torch.dtype | None:
    """The output dtype under autocast of a layer with parameters of dtype `own`; None if it does not apply.

    As for `nn.Linear`, autocast leaves float64 alone.
    """
    if not torch._C._is_any_autocast_enabled():  # ten times as fast as the checks below
        return None
    device = x.device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return None
    return None if torch.float64 in (x.dtype, own) else torch.get_autocast_dtype(device)


def precision(x: Tensor, own: torch.dtype) -> tuple[torch.dtype, torch.dtype] | None:
    """The dtypes to compute in and to return; None if both are that of the parameters, `own`.

    Half precision is used for storage, not for sums: functions are evaluated and summed in float32, and the
    sum is rounded once. Under autocast, the output has the same dtype as from `nn.Linear`. Unlike there,
    parameters and inputs are not rounded first, since a function such as sin(10*x) may magnify the error.
    """
    output = autocast_dtype(x, own)
    if output is None and own not in HALF:
        return None
    return torch.float32, output or own
