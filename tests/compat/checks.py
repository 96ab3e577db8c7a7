"""One check for each feature of torch. A check raises if the result differs from NumPy's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, hessian, vmap

from ftnn import catalogue
from ftnn.kernels import Backend
from tests.compat import processes
from tests.compat.cases import CASES, NAMES, Case, Sums, Together


def close(actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None) -> None:
    """Assert that tensors are equal to these tolerances, or to torch's defaults."""
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


F32 = {"rtol": 2e-5, "atol": 2e-6}
ROUNDED = {"rtol": 2**-8, "atol": 1e-5}
"""The error of a single rounding to bfloat16. Sums of bfloat16 numbers have larger errors."""


def gradients(module: Sums, out: Tensor, weight: Tensor) -> dict[str, Tensor]:
    """The gradient of `Σ weight · out` by every parameter."""
    named = dict(module.named_parameters())
    grads = torch.autograd.grad(out, list(named.values()), weight.to(out.dtype))
    return dict(zip(named, grads, strict=True))


def weights(out: Tensor) -> Tensor:
    """Numbers that are exact in bfloat16, of the shape of `out`."""
    return (torch.arange(out.numel(), dtype=torch.float64) % 5 - 2).reshape(out.shape) / 2


def exact(case: Case, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The output by NumPy, and the gradients by the reference, in float64."""
    module = case.module(backend="reference")
    expected = case.oracle(module, x)
    return expected, gradients(module, module(x.double()), weights(expected))


def eager(name: str) -> None:
    """Forward and backward in both dtypes, by the path that `auto` chooses."""
    case = CASES[name]
    for dtype, tolerance in ((torch.float64, {"rtol": 1e-10, "atol": 1e-11}), (torch.float32, F32)):
        x = case.x(dtype=dtype)
        expected, slopes = exact(case, x)
        module = case.module(dtype)
        out = module(x)
        close(out, expected.to(dtype), **tolerance)
        grads = gradients(module, out, weights(out))
        for key, slope in slopes.items():
            close(grads[key], slope.to(dtype), **tolerance)


def compiled(name: str, compiler: str = "aot_eager", backend: Backend = "reference") -> None:
    """One whole graph for every batch size, forward and backward."""
    from torch._dynamo.testing import CompileCounterWithBackend

    case = CASES[name]
    torch.compiler.reset()
    counter = CompileCounterWithBackend(compiler)
    module = case.module(backend=backend)
    run = torch.compile(module, fullgraph=True, dynamic=True, backend=counter)
    for batch in (4, 7, 2):
        x = case.x(batch)
        expected, slopes = exact(case, x)
        out = run(x)
        close(out, expected)
        grads = gradients(module, out, weights(out))
        for key, slope in slopes.items():
            close(grads[key], slope)
    assert counter.frame_count == 1, "recompiled for another batch size"


@cache
def _inductor(backend: Backend) -> tuple[Together, Callable[..., Any], Any]:
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("inductor")
    module = Together(torch.float64, backend)
    return module, torch.compile(module, fullgraph=True, dynamic=True, backend=counter), counter


@cache
def _by_inductor(backend: Backend, batch: int) -> dict[str, tuple[Tensor, dict[str, Tensor]]]:
    """The output and gradients of every function, compiled together, which is faster."""
    module, run, counter = _inductor(backend)
    outs = run(CASES["F01"].x(batch), CASES["memory"].x(batch))
    assert counter.frame_count == 1, "recompiled for another batch size"
    named = dict(module.named_parameters())
    grads = torch.autograd.grad(outs, list(named.values()), [weights(out) for out in outs])
    slopes = {key.removeprefix("all."): slope for key, slope in zip(named, grads, strict=True)}
    by_name = {name: {k: s for k, s in slopes.items() if k.startswith(f"{name}.")} for name in NAMES}
    return {
        name: (out.detach(), {key.removeprefix(f"{name}."): slope for key, slope in by_name[name].items()})
        for name, out in zip(NAMES, outs, strict=True)
    }


def inductor(name: str) -> None:
    """`torch.compile` with Inductor, forward and backward, for two backends and two batch sizes."""
    backends: tuple[Backend, ...] = ("auto", "reference")
    for backend, batch in product(backends, (4, 7)):
        out, grads = _by_inductor(backend, batch)[name]
        expected, slopes = exact(CASES[name], CASES[name].x(batch))
        close(out, expected)
        assert grads.keys() == slopes.keys()
        for key, slope in slopes.items():
            close(grads[key], slope)


def exported(name: str) -> None:
    """The exported graph has only torch's operators, and works for every batch size."""
    case = CASES[name]
    module = case.module()
    program = torch.export.export(module, (case.x(),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    called = {node.target for node in program.graph.nodes if node.op == "call_function"}
    custom = [op for op in called if isinstance(op, torch._ops.OpOverload) and op.namespace != "aten"]
    assert custom == []
    x = case.x(7)
    close(program.module()(x), case.oracle(module, x), rtol=1e-10, atol=1e-11)


@cache
def _onnx() -> Any:
    import onnxruntime

    dim = torch.export.Dim("batch")
    module = Together(torch.float32).eval()
    inputs = (CASES["F01"].x(dtype=torch.float32), CASES["memory"].x(dtype=torch.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from the exporter
        shapes = ({0: dim}, {0: dim})
        program = torch.onnx.export(module, inputs, dynamo=True, dynamic_shapes=shapes, verbose=False)
    assert program is not None
    model = program.model_proto
    assert {node.domain for node in model.graph.node} <= {""}, "non-standard ONNX operators"
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@cache
def _by_onnx(batch: int) -> dict[str, Any]:
    session = _onnx()
    inputs = [CASES[name].x(batch, torch.float32).numpy() for name in ("F01", "memory")]
    names = [entry.name for entry in session.get_inputs()]
    return dict(zip(NAMES, session.run(None, dict(zip(names, inputs, strict=True))), strict=True))


def onnx(name: str) -> None:
    """In onnxruntime, for two batch sizes, within 1e-5 of torch."""
    case = CASES[name]
    for batch in (4, 7):
        with torch.no_grad():
            expected = case.module(torch.float32)(case.x(batch, torch.float32))
        np.testing.assert_allclose(_by_onnx(batch)[name], expected.numpy(), rtol=1e-5, atol=1e-5)


def bf16(name: str) -> None:
    """Autocast: float32 sums rounded once, and float32 gradients. Also a module with bfloat16 parameters."""
    case = CASES[name]
    x = case.x(dtype=torch.float32)
    expected, slopes = exact(case, x)
    module = case.module(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = module(x)
        assert out.dtype == torch.nn.functional.linear(x, x.flatten(0, -2)).dtype == torch.bfloat16
        grads = gradients(module, out, weights(out))
    close(out.double(), expected, **ROUNDED)
    for key, slope in slopes.items():
        close(grads[key], slope.float(), rtol=1e-4, atol=1e-5)

    module, x = case.module(torch.bfloat16), case.x(dtype=torch.bfloat16)
    out = module(x)
    assert out.dtype == torch.bfloat16
    close(out.double(), case.oracle(module, x), **ROUNDED)
    double = case.module()
    double.load_state_dict({key: value.double() for key, value in module.state_dict().items()})
    slopes = gradients(double, double(x.double()), weights(out))
    for key, grads in gradients(module, out, weights(out)).items():
        assert grads.dtype == torch.bfloat16
        close(grads.double(), slopes[key], **ROUNDED)


def mapped(name: str) -> None:
    """`vmap`, and per-sample gradients by `vmap(grad(…))` with `functional_call`."""
    case = CASES[name]
    module, x = case.module(), case.x()
    expected = case.oracle(module, x)
    parameters = {key: value.detach() for key, value in module.named_parameters()}

    def one(values: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(module, values, (row[None],))[0]

    close(vmap(one, (None, 0))(parameters, x), expected, rtol=1e-10, atol=1e-11)
    weight = weights(expected)

    def loss(values: dict[str, Tensor], row: Tensor, w: Tensor) -> Tensor:
        return (one(values, row) * w).sum()

    grads: Any = vmap(grad(loss), (None, 0, 0))(parameters, x, weight)
    for n in range(len(x)):
        for key, slope in gradients(module, module(x[n : n + 1]), weight[n : n + 1]).items():
            close(grads[key][n], slope, rtol=1e-10, atol=1e-11)


def second(name: str) -> None:
    """Second derivatives along a direction of inputs and parameters, by autograd, torch.func and NumPy."""
    case = CASES[name]
    module, x = case.module(), case.x(2)
    start = {"x": x, **{key: value.detach() for key, value in module.named_parameters()}}
    generator = torch.Generator().manual_seed(5)
    direction = {k: torch.rand(v.shape, generator=generator, dtype=v.dtype) - 0.5 for k, v in start.items()}
    weight = weights(module(x))

    def along(step: Tensor) -> Tensor:
        at = {key: value + step * direction[key] for key, value in start.items()}
        row = at.pop("x")
        return (functional_call(module, at, (row,)) * weight).sum()

    def by_numpy(step: float) -> float:
        at = {key: value + step * direction[key] for key, value in start.items()}
        row = at.pop("x")
        replaced = {key.removeprefix("layer."): value for key, value in at.items()}
        return float((case.oracle(module, row, replaced) * weight).sum())

    zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(along(zero), zero, create_graph=True)
    (curvature,) = torch.autograd.grad(first, zero)
    close(hessian(along)(zero.detach()), curvature, rtol=1e-9, atol=1e-9)
    h = 2e-4
    numeric = (by_numpy(h) - 2 * by_numpy(0) + by_numpy(-h)) / h**2
    scale = max(1.0, abs(numeric))
    close(curvature.item(), numeric, rtol=0, atol=2e-5 * scale)


def triton(name: str) -> None:
    """The GPU kernels, forward and backward, in Triton's interpreter."""
    from tests.kernels.interpreted import by_triton

    function, case = catalogue[name], CASES[name]
    x = case.x(dtype=torch.float32)
    module: Any = case.module(torch.float32).layer
    matrices = [matrix.detach() for matrix in module.matrices()]
    expected, slopes = exact(case, x)
    out, _, *grads = by_triton(function, x, matrices, weights(expected).float())
    close(out + module.bias.detach(), expected.float(), **F32)
    for parameter, slope in zip(function.parameters, grads, strict=True):
        close(slope, slopes[f"layer.theta.{parameter}"].float(), **F32)


COLUMNS: dict[str, Callable[[str], None]] = {
    "eager": eager,
    "compile": inductor,
    "export": exported,
    "ONNX": onnx,
    "bf16": bf16,
    "vmap": mapped,
    "second derivative": second,
    "DDP": processes.ddp,
    "Triton interpreter": triton,
}
"""The columns of docs/compatibility.md."""


def applies(column: str, name: str) -> bool:
    """Whether a check applies to a function: Triton has no kernels for memory functions."""
    return not (column == "Triton interpreter" and name == "memory")
