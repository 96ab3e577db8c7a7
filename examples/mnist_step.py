"""One training step on 64 MNIST images: forward, loss, backward, with times and gradient norms."""

import time

import torch
from torch.nn.functional import cross_entropy

import ftnn

data = ftnn.data.mnist()
x, y = torch.from_numpy(data.train_images[:64]), torch.from_numpy(data.train_labels[:64])

torch.manual_seed(0)
net = ftnn.nn.Network(784, [128], 10, function="F12", activation="tanh")
print(f"784-128-10, every hidden connection is {net.layers[0].function}, on {len(x)} images of MNIST")

for step in ("first step (compiles kernels)", "second step"):
    net.zero_grad()
    start = time.perf_counter()
    loss = cross_entropy(net(x), y)
    forward = time.perf_counter()
    loss.backward()
    backward = time.perf_counter()
    print(
        f"{step:<31} loss {loss.item():.4f}   "
        f"forward {1e3 * (forward - start):6.1f} ms   backward {1e3 * (backward - forward):6.1f} ms"
    )

print("gradient norms")
for name, parameter in net.named_parameters():
    assert parameter.grad is not None
    print(f"  {name:<16} {'×'.join(map(str, parameter.shape)):>8}   {parameter.grad.norm():.3e}")
