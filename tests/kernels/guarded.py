# pyright: reportUnknownLambdaType=false
"""Memory next to a protected page: reading or writing beyond it kills the process.

Run as a program, it runs all compiled code in such memory.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch

PAGE = mmap.PAGESIZE
PROT_NONE = 0
Array = np.ndarray[Any, np.dtype[Any]]
Side = Literal["behind", "before"]

_libc = ctypes.CDLL(None, use_errno=True)
_alive: list[Any] = []


def place(array: Array, side: Side) -> Array:
    """A copy of an array with a protected page right behind or right before it."""
    pages = -(-array.nbytes // PAGE)
    region = mmap.mmap(-1, (pages + 2) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(region))
    for page in (0, pages + 1):
        if _libc.mprotect(ctypes.c_void_p(start + page * PAGE), ctypes.c_size_t(PAGE), PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = PAGE if side == "before" else (pages + 1) * PAGE - array.nbytes
    copy = np.frombuffer(region, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    _alive.append(region)
    return copy


def torch_kernels(side: Side) -> None:
    """The torch backend, with its tensors and temporary buffers in guarded memory."""
    import ftnn
    from ftnn.kernels.cpu import backend, launch, lists
    from tests.kernels.yardstick import case

    def guarded(shape: Any, dtype: torch.dtype) -> torch.Tensor:
        return torch.from_numpy(place(torch.zeros(shape, dtype=dtype).numpy(), side))

    def empty(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        return guarded(shape, dtype)

    def new_empty(self: torch.Tensor, *shape: int) -> torch.Tensor:
        return guarded(shape, self.dtype)

    proxy = SimpleNamespace(
        **{name: getattr(torch, name) for name in dir(torch) if not name.startswith("__")}
    )
    proxy.empty = empty
    importing: tuple[Any, ...] = (launch, lists)
    for module in importing:
        module.torch = proxy
    torch.Tensor.new_empty = new_empty  # pyright: ignore[reportAttributeAccessIssue]
    for dtype in (torch.float32, torch.float64):
        for inputs, outputs, batch, density in (
            (1, 1, 1, 1.0),
            (17, 33, 70, 0.2),
            (20, 16, 64, 0.2),
            (3, 150, 5, 0.2),
            (19, 33, 70, 1.0),
            (20, 16, 64, 1.0),
        ):
            problem = case(ftnn.catalogue["F16"], inputs, outputs, batch, density, dtype)
            x, grad, *matrices = (
                torch.from_numpy(place(t.numpy(), side)) for t in (problem.x, problem.grad, *problem.matrices)
            )
            backend.transfer(problem.program, x, matrices)
            backend.transfer_backward(problem.program, grad, x, matrices, problem.program.differentiable)


def driver(side: Side) -> None:
    """Training epochs, with the network, its buffers and its data in guarded memory."""
    from ftnn.formula import catalogue
    from ftnn.kernels.program import program_of, signature
    from ftnn.nn._activations import activation_formula
    from ftnn.training import RULES
    from ftnn.training._losses import loss_formula
    from ftnn.training.compiled import buffers, network, runner, sequence, step

    def aligned_zeros(shape: Any, dtype: Any) -> Array:
        return place(np.zeros(shape, dtype), side)

    def require(array: Any, dtype: Any, _: Any) -> Array:
        return place(np.ascontiguousarray(array, dtype), side)

    guarded: Any = SimpleNamespace(**vars(np))
    guarded.require = require
    guarded.zeros = lambda shape, dtype=float: place(np.zeros(shape, dtype), side)
    guarded.array = lambda values, dtype=None: place(np.array(values, dtype), side)
    modules: tuple[Any, ...] = (buffers, sequence, step)
    for module in modules:
        module.aligned_zeros = aligned_zeros
    importing: tuple[Any, ...] = (buffers, network, runner, step)
    for module in importing:
        module.np = guarded
    random = np.random.default_rng(0)
    program = program_of(*signature(catalogue["F16"]))
    for activation, loss, density, batch in (
        ("relu", "softmax", 0.2, 7),
        ("tanh", "huber", 1.0, 7),
        ("x*logistic(x)", "softmax", 0.2, 1),
        ("logistic", "squared", 0.2, 300),
    ):
        formula = activation_formula(activation)
        shapes = [
            buffers.Shape(program, 19, 17, formula),
            buffers.Shape(program, 17, 3, formula),
            buffers.Shape(buffers.LINEAR, 3, 5),
        ]
        rule = RULES["adam"].compiled(0.01)
        clip_norm = 1.0 if batch == 7 else None
        net = network.CompiledNetwork(shapes, loss_formula(loss), "float64", batch, rule, clip_norm)
        for layer in net.layers:
            inputs, outputs = layer.shape.inputs, layer.shape.outputs
            layer.load(
                [random.normal(size=(inputs, outputs)) for _ in layer.matrices], random.normal(size=outputs)
            )
        x = random.normal(size=(310, 19)) * (random.random((310, 19)) < density)
        samples = buffers.Samples.of(x, "float64")
        labels, numbers = random.integers(5, size=310), random.normal(size=(310, 5))
        weights = (310, "float64", np.ones(310))
        expected = (
            buffers.Targets.labels(labels, 5, *weights)
            if loss == "softmax"
            else buffers.Targets.numbers(numbers, 5, *weights)
        )
        net.train(samples, expected, np.arange(310), rate=0.01, clip=1.0)
        net.predict(samples)
        net.predict(samples, upto=1)
    memory = buffers.Shape(program_of("tanh(p*x + q*C + r)"), 5, 9, activation_formula("logistic"))
    output = buffers.Shape(buffers.LINEAR, 9, 3)
    net = sequence.CompiledMemoryNetwork(memory, output, loss_formula("softmax"), "float64")
    net.layers[0].load([random.normal(size=(5, 9)) for _ in range(3)], None)
    net.layers[1].load([random.normal(size=(9, 3))], None)
    pairs = buffers.Samples.dense(random.normal(size=(11, 5)), "float64")
    expected = buffers.Targets.labels(random.integers(3, size=11), 3, 11, "float64", None)
    net.train_sequence(pairs, expected, rate=0.1)


if __name__ == "__main__":
    from tests.kernels.buffers import all_kernels

    chosen: Side = "before" if sys.argv[2] == "before" else "behind"
    if sys.argv[1] == "nothing":  # to test the guard itself
        bare = place(np.zeros(3), chosen)
        ctypes.string_at(bare.ctypes.data + (24 if chosen == "behind" else -1), 1)
    all_kernels(lambda array: place(array, chosen))
    print("kernels", flush=True)
    driver(chosen)
    print("driver", flush=True)
    torch_kernels(chosen)
    print("torch", flush=True)
