"""Whether the modules of a network fit together, checked before any of them computes."""

from __future__ import annotations

from torch import nn

from ftnn.errors import FtnnError, ShapeError
from ftnn.nn import Memory, MemoryNetwork, Partial, Transfer
from ftnn.nn._activations import MODULES
from ftnn.training._start import applied

_KEEP_SIZE = (*MODULES, nn.Identity, nn.Flatten, nn.Dropout)
"""Modules with as many outputs as inputs, for inputs (samples, features)."""


def check_chain(net: nn.Module) -> None:
    """Refuse layers of different sizes in a row, and layers with a state; other modules may do anything."""
    size: int | None = None
    for module in applied(net):
        if isinstance(module, Memory | MemoryNetwork):
            raise FtnnError(
                f"fit cannot train a {type(module).__name__}, which needs a sequence: pass an "
                "ftnn.nn.MemoryNetwork to ftnn.training.fit_sequence"
            )
        if isinstance(module, Transfer | Partial | nn.Linear):
            if size not in (None, module.in_features):
                raise ShapeError(f"a layer with {size} outputs feeds one with {module.in_features} inputs")
            size = module.out_features
        elif isinstance(module, nn.BatchNorm1d):
            if size not in (None, module.num_features):
                raise ShapeError(f"nn.BatchNorm1d({module.num_features}) follows a layer with {size} outputs")
        elif type(module) not in _KEEP_SIZE:
            size = None
