"""Workload D: a layer's memory beyond its inputs, parameters, outputs and gradients, in a fresh process.

The process warms up on a small layer (compiled kernels, threads, stacks), creates the large layer and its
input, notes its memory, resets the high-water mark, runs both passes, and reads the mark.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ftnn.bench._measure import Effort
from ftnn.bench._rows import Row
from ftnn.bench._systems import EAGER, FTNN, Systems
from ftnn.bench._torch import Broadcast, layer
from ftnn.errors import FtnnError

MIB = 2**20
STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # see proc(5)


@dataclass(frozen=True, slots=True)
class PeakSize:
    features: int = 1024
    """The number of inputs, and of outputs."""
    batch: int = 1024
    eager_batch: int = 32
    """For the plain formula, whose arrays grow with the batch: 1024 would take tens of GiB."""


PEAK = PeakSize()


def is_available() -> bool:
    """Whether the system reports the current and peak memory of a process, as Linux does."""
    return STATUS.exists() and CLEAR.exists()


def _memory(name: str) -> int:
    """VmRSS or VmHWM, in bytes."""
    match = re.search(rf"^{name}:\s+(\d+) kB$", STATUS.read_text("ascii"), re.MULTILINE)
    if match is None:
        raise FtnnError(f"{STATUS} has no {name}")
    return 1024 * int(match[1])


def _pass(module: nn.Module, x: Tensor, error: Tensor) -> list[Tensor]:
    """The outputs and all gradients."""
    out: Tensor = module(x)
    return [out, *torch.autograd.grad(out, [x, *module.parameters()], error)]


def _layer_and_data(
    system: str, function: str, features: int, batch: int
) -> tuple[nn.Module, Tensor, Tensor]:
    transfer = layer(function, features, features)
    x = torch.empty(batch, features).uniform_(0.01, 1).requires_grad_()
    return (transfer if system == FTNN else Broadcast(transfer)), x, torch.randn(batch, features)


def extra_bytes(system: str, function: str, features: int, batch: int) -> int:
    """The extra memory in this process, which should be fresh."""
    for _ in range(3):
        _pass(*_layer_and_data(system, function, 96, 96))
    task = _layer_and_data(system, function, features, batch)
    before = _memory("VmRSS")
    CLEAR.write_text(RESET_PEAK)
    results = _pass(*task)
    peak = _memory("VmHWM")
    return peak - before - sum(r.numel() * r.element_size() for r in results)


_CODE = """
import json, sys
from ftnn.bench._peak import extra_bytes
print(extra_bytes(*json.loads(sys.argv[1])))
"""


def _in_a_fresh_process(*task: Any) -> float:
    """`extra_bytes`, in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", _CODE, json.dumps(task)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise FtnnError(f"measuring memory failed:\n{done.stderr.strip()}")
    return int(done.stdout) / MIB


def peak_rows(function: str, effort: Effort, systems: Systems, size: PeakSize = PEAK) -> Iterator[Row]:
    """Rows of workload D, with `mib` instead of times; none if the system does not report memory."""
    if not is_available():
        return
    for system in (FTNN, EAGER):
        batch = size.batch if system == FTNN else min(size.batch, size.eager_batch)
        factor = size.batch / batch
        yield Row(
            "D",
            function,
            system,
            ms=None,
            times_mlp=None,
            mib=round(factor * _in_a_fresh_process(system, function, size.features, batch), 1),
            batch=size.batch,
            width=size.features,
            density=1.0,
            note=f"scaled from a batch of {batch}" if batch < size.batch else "",
        )
