"""Whether generated CPU code is available, and where to find it. Loads LLVM at the first use."""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor


def cpu_computes(x: Tensor) -> bool:
    """Whether generated CPU code supports this input."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and cpu_available()


@cache
def cpu_available() -> bool:
    """Whether generated CPU code runs on this machine. Warns once if not."""
    try:
        cpu_backend()
    except (ImportError, OSError, RuntimeError) as error:
        warnings.warn(f"cannot load ftnn's CPU kernels; using plain torch instead: {error}", stacklevel=2)
        return False
    return True


@cache
def cpu_backend():
    from ftnn.kernels.cpu import backend

    return backend
