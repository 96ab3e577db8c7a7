"""Train one network in several processes: `torchrun --nproc-per-node 2 examples/ddp.py`.

Each process takes its share of every batch, and DistributedDataParallel averages the gradients over gloo. The
first process checks that the parameters match those of a single process trained on the joint batches.
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
    """Inputs (BATCH, 4) and targets (BATCH, 1), the same in every process."""
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

# Processes start with different parameters; DDP copies those of the first one to the others, constants too.
torch.manual_seed(rank)
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
