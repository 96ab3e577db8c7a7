"""Your own formula in a plain PyTorch loop: learn a wave of unknown frequency from noisy samples."""

import json

import torch

import ftnn

torch.manual_seed(0)
x = torch.linspace(-3, 3, 256)[:, None]
truth = 0.8 * torch.sin(1.7 * x + 0.4) * torch.exp(-0.2 * x**2)
y = truth + 0.02 * torch.randn_like(truth)

# A wave under a bell curve: each connection has its own height, frequency, phase and width.
bell = ftnn.Function("p*sin(q*x + r)*exp(-(s*x)**2)", init={"p": (-0.5, 0.5), "q": (0, 3), "s": (0, 1)})
layer = ftnn.nn.Transfer(1, 4, bell)
net = torch.nn.Sequential(layer, torch.nn.Linear(4, 1))

optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(600):
    optimiser.zero_grad()
    loss = torch.nn.functional.mse_loss(net(x), y)
    loss.backward()
    optimiser.step()

with torch.no_grad():
    error = float((net(x) - truth).square().mean().sqrt() / truth.square().mean().sqrt())
print("learned frequencies:", layer.matrix("q").detach().flatten().tolist())
print(json.dumps({"relative_error": error}))
