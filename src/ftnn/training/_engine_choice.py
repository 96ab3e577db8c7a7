"""Which engine trains: the compiled one where it can do what is asked."""

from __future__ import annotations

import logging
from typing import get_args

import torch
from torch import nn

from ftnn.errors import FtnnError
from ftnn.kernels import cpu_available
from ftnn.training._checks import one_of
from ftnn.training._engine import Engine, EngineName
from ftnn.training._engine_compiled import CompiledEngine
from ftnn.training._engine_torch import TorchEngine
from ftnn.training._lowering import NoCompiledFormError, lower
from ftnn.training._optimizers import MakeOptimizer
from ftnn.training._problem import Problem
from ftnn.training._settings import Settings

_LOG = logging.getLogger("ftnn")
_told: set[str] = set()


def choose(name: EngineName, module: nn.Module, optimizer: MakeOptimizer | None) -> str:
    """The name of the engine to take."""
    one_of("engine", name, get_args(EngineName))
    reason = _why_not_compiled(module, optimizer)
    if name == "compiled" and reason:
        raise FtnnError(f'engine="compiled" cannot be used: {reason}; engine="torch" can')
    if name == "auto" and reason.startswith("no compiled form") and reason not in _told:
        _told.add(reason)
        _LOG.info("%s; training with PyTorch instead", reason)
    return "torch" if name == "torch" or reason else "compiled"


def _why_not_compiled(module: nn.Module, optimizer: MakeOptimizer | None) -> str:
    parameters = list(module.parameters())
    if optimizer is not None:
        return "it has update rules of its own, and a torch optimizer was given"
    if any(p.device.type != "cpu" or p.dtype not in (torch.float32, torch.float64) for p in parameters):
        return "it computes float32 and float64 on the CPU"
    if not all(p.requires_grad for p in parameters):
        return "some parameters are frozen"
    if any(nn.utils.parametrize.is_parametrized(part) for part in module.modules()):
        return "some parameters are parametrised"
    try:
        lower(module)
    except NoCompiledFormError as error:
        return f"no compiled form for {error}"
    return "" if cpu_available() else "LLVM cannot be loaded"


def make_engine(
    name: str,
    module: nn.Module,
    problem: Problem,
    settings: Settings,
    optimizer: MakeOptimizer | None = None,
    first_rate: float | None = None,
) -> Engine:
    """`first_rate`: what the stage's learning rate begins with, even if the run is resumed at another."""
    if name == "compiled":
        return CompiledEngine(module, problem, settings)
    return TorchEngine(module, problem, settings, optimizer, first_rate)
