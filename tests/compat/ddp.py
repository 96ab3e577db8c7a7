"""Run by torchrun: compares the parameters of every function after training in two processes and in one."""

from __future__ import annotations

import json

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.compat.cases import CASES, Case

STEPS, BATCH = 3, 8


def train(net: nn.Module, case: Case, share: slice) -> None:
    """A few steps of gradient descent on a share of every batch."""
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(STEPS):
        optimiser.zero_grad()
        (net(case.x(BATCH, seed=step)[share]) ** 2).mean().backward()
        optimiser.step()


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    differences: dict[str, float] = {}
    for name, case in CASES.items():
        net, alone = case.module(), case.module()
        train(DistributedDataParallel(net), case, slice(rank, None, size))
        train(alone, case, slice(None))
        pairs = zip(net.parameters(), alone.parameters(), strict=True)
        differences[name] = max(float((one - other).abs().max()) for one, other in pairs)
    if rank == 0:
        print(json.dumps(differences))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
