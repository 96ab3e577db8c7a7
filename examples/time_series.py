"""A time series with `Memory`: recall the input from three steps ago.

Every connection of a memory layer keeps its own previous value, tanh(p*x + q*C + r). The inputs are noise, so
a network without memory can do no better than predict the mean.
"""

import json

import torch
from torch import Tensor, nn

import ftnn

DELAY = 3


def series(batch: int, time: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noise of shape (time, batch, 1), and the same noise delayed by DELAY steps."""
    x = torch.rand(time, batch, 1, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return x, torch.cat([torch.zeros(DELAY, batch, 1), x[:-DELAY]])


torch.manual_seed(0)
start = ftnn.Function("tanh(p*x + q*C + r)", init={"p": (-1, 1), "q": (-0.9, 0.9), "r": (-0.1, 0.1)})
memory = ftnn.nn.Memory(1, 32, start, through_time=True)
read = nn.Sequential(nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimiser = torch.optim.Adam([*memory.parameters(), *read.parameters()], lr=0.01)

x, y = series(batch=64, time=20, seed=1)
for _ in range(300):
    optimiser.zero_grad()
    out, _ = memory(x)
    nn.functional.mse_loss(read(out), y).backward()
    optimiser.step()

with torch.no_grad():
    x, y = series(batch=64, time=20, seed=2)
    # Process the sequence in two parts; the state carries over.
    first, state = memory(x[:10])
    second, _ = memory(x[10:], state)
    recalled = read(torch.cat([first, second]))
    explained = 1 - float((recalled - y)[DELAY:].square().mean() / y[DELAY:].var())
print(json.dumps({"explained_variance": explained}))
