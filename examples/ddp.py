"""Several processes train one network: `torchrun --nproc-per-node 2 examples/ddp.py`.

Each process takes its share of every batch; DistributedDataParallel averages the gradients over gloo. The
parameters come out as if one process had trained on the joint batches, which the first process checks.
"""

import copy
import json

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import ftnn

STEPS, BATCH = 20, 32


def joint_batch(step: int) -> tuple[Tensor, Tensor]:
    """The same on every process: inputs (BATCH, 4) and what to learn of them, (BATCH, 1)."""
    x = torch.randn(BATCH, 4, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    return x, torch.sin(x).sum(1, keepdim=True)


def train(net: nn.Module, share: slice) -> None:
    """Train on this share of every batch."""
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(STEPS):
        x, y = joint_batch(step)
        optimiser.zero_grad()
        nn.functional.mse_loss(net(x[share]), y[share]).backward()
        optimiser.step()


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
assert BATCH % size == 0, f"{size} processes cannot share batches of {BATCH} equally"

torch.manual_seed(
    rank
)  # they begin apart, and DDP gives all of them the first one's parameters and constants
net = ftnn.nn.Network(4, [16, 16], 1, function=["F12", "F07"], activation="tanh", dtype=torch.float64)
parallel = DistributedDataParallel(net)
alone = copy.deepcopy(net)

train(parallel, slice(rank, None, size))
if rank == 0:
    train(alone, slice(None))
    pairs = zip(net.state_dict().values(), alone.state_dict().values(), strict=True)
    difference = max(float((one - other).abs().max()) for one, other in pairs)
    print(json.dumps({"processes": size, "difference": difference}))
dist.destroy_process_group()
