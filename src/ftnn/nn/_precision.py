"""In which precision a layer computes: under autocast, and where its parameters are half-precision."""

from __future__ import annotations

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)
DTYPES = (*HALF, torch.float32, torch.float64)
"""Those that layers compute in."""


def autocast_dtype(x: Tensor, own: torch.dtype) -> torch.dtype | None:
    """What a layer with parameters of dtype `own` answers in under autocast; None where that does not apply.

    As for `nn.Linear`, autocast leaves float64 alone.
    """
    if not torch._C._is_any_autocast_enabled():  # at a tenth of the price of the questions below
        return None
    device = x.device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return None
    return None if torch.float64 in (x.dtype, own) else torch.get_autocast_dtype(device)


def precision(x: Tensor, own: torch.dtype) -> tuple[torch.dtype, torch.dtype] | None:
    """In which dtype to compute and in which to answer; None where both are that of the parameters, `own`.

    Half precision is for what is kept and sent, never for what is summed: functions are evaluated and summed
    in float32, and the sum is rounded once. Under autocast the answer has the dtype that `nn.Linear` would
    answer in; unlike it, parameters and inputs are not rounded before, since a function, sin(10*x) say, may
    magnify what rounding takes.
    """
    answer = autocast_dtype(x, own)
    if answer is None and own not in HALF:
        return None
    return torch.float32, answer or own
