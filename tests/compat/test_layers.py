"""Layers under torch's compiler, exporter, autocast and transforms, beyond the table."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap
from torch.library import opcheck

import ftnn
from ftnn import Mixed, catalogue
from ftnn.errors import DTypeError
from ftnn.kernels import Backend, program_of, signature, transfer
from ftnn.kernels.contraction import contraction
from ftnn.nn import Memory, Network, Partial, Transfer
from tests.kernels._layers import tensors

pytestmark = pytest.mark.filterwarnings("ignore")  # from torch.compile and the exporter
close = torch.testing.assert_close

PLACES = [(0, 0), (1, 2), (2, 3), (2, 1)]
LAYERS: dict[str, Callable[..., nn.Module]] = {
    "transfer": partial(Transfer, 4, 3, "F12", dtype=torch.float64),
    "no bias": partial(Transfer, 4, 3, "F12", bias=False, dtype=torch.float64),
    "mixed": partial(Transfer, 4, 3, Mixed(["F12", "F03"]), dtype=torch.float64),
    "network": partial(Network, 4, [5, 3], 2, "F07", dtype=torch.float64),
    "partial": partial(Partial, 4, 3, "F12", PLACES, dtype=torch.float64),
    "scale": partial(Transfer, 4, 3, "F10", scale=True, dtype=torch.float64),
}
BACKENDS: tuple[Backend, ...] = ("auto", "reference")


def rows(batch: int = 5) -> Tensor:
    return torch.rand(batch, 4, generator=torch.Generator().manual_seed(batch), dtype=torch.float64) - 0.3


def slopes(module: nn.Module, out: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(out.sin().sum(), list(module.parameters()))


# ---- torch.compile


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_compiles_to_one_graph_for_a_dynamic_batch_size(layer: str, backend: Backend):
    from torch._dynamo.testing import CompileCounterWithBackend

    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    module = LAYERS[layer](backend=backend)
    compiled = torch.compile(module, fullgraph=True, backend=counter)
    for batch in (5, 8, 3):
        x = rows(batch)
        torch._dynamo.mark_dynamic(x, 0)
        out, expected = compiled(x), module(x)
        close(out, expected)
        close(slopes(module, out), slopes(module, expected))
    assert counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["network", "partial"])
def test_inductor_compiles_networks_and_partial_layers(layer: str):
    torch.compiler.reset()
    module = LAYERS[layer]()
    compiled = torch.compile(module, fullgraph=True, dynamic=True)
    out, expected = compiled(rows()), module(rows())
    close(out, expected)
    close(slopes(module, out), slopes(module, expected))


@pytest.mark.slow
@pytest.mark.parametrize("through_time", [False, True])
def test_compiled_memory_continues_from_its_state(through_time: bool):
    torch.compiler.reset()
    cell = Memory(4, 3, dtype=torch.float64, through_time=through_time)
    compiled = torch.compile(cell, fullgraph=True, dynamic=True, backend="aot_eager")
    for time in (2, 3):  # each length is compiled separately
        x = torch.rand(time, 5, 4, dtype=torch.float64)
        out, state = compiled(x)
        again, last = compiled(x, state)
        expected, expected_state = cell(x, cell(x)[1])
        close((again, last), (expected, expected_state))
        close(slopes(cell, out + again), slopes(cell, cell(x)[0] + expected))


def test_the_surrogate_gradient_of_rect_ada_works_in_compiled_and_transformed_code():
    torch.compiler.reset()
    layer = Transfer(2, 1, "F07", bias=False, dtype=torch.float64, backend="reference")
    with torch.no_grad():
        layer.matrix("p").copy_(torch.tensor([[-0.5, 0.25]]))
    x = torch.tensor([[2.0, -3.0]], dtype=torch.float64)
    expected = layer.constants["u"] * x.T
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    close(torch.autograd.grad(compiled(x).sum(), layer.theta["p"])[0], expected)

    def total(p: Tensor) -> Tensor:
        return functional_call(layer, {"theta.p": p}, (x,)).sum()

    close(grad(total)(layer.theta["p"].detach()), expected)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_transforms_work_inside_compiled_code(backend: Backend):
    torch.compiler.reset()
    layer = Transfer(4, 3, "F12", dtype=torch.float64, backend=backend)

    def total(row: Tensor) -> Tensor:
        return layer(row).sum()

    def each(x: Tensor) -> Any:
        return vmap(layer)(x), vmap(grad(total))(x)

    close(torch.compile(each, fullgraph=True, backend="aot_eager")(rows()), each(rows()))


@pytest.mark.slow
@pytest.mark.parametrize("path", ["transfer", "transfer/0,1,2,3", "transfer/1/0,2,4"])
def test_the_contract_operator_passes_opcheck(path: str):
    contracted = contraction(program_of(*signature(catalogue["F12"])), path)
    shapes = {"bi": (3, 4), "io": (4, 2), "bo": (3, 2)}
    axes = [axes for _, axes in contracted.operands]
    operands = [torch.rand(shapes[a], dtype=torch.float64, requires_grad=True) for a in axes]
    opcheck(torch.ops.ftnn.contract.default, (operands, *signature(catalogue["F12"]), path))


# ---- torch.export


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layer", LAYERS)
def test_an_exported_layer_has_no_custom_operators(layer: str, backend: Backend):
    module = LAYERS[layer](backend=backend)
    program = export(module, (rows(),), dynamic_shapes=({0: Dim("batch")},))
    assert "ftnn" not in program.graph_module.code
    close(program.module()(rows(9)), module(rows(9)))


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["transfer", "network"])
def test_a_strictly_exported_layer_has_no_custom_operators_after_decomposition(layer: str):
    torch.compiler.reset()
    module = LAYERS[layer]()
    program = export(module, (rows(),), dynamic_shapes=({0: Dim("batch")},), strict=True)
    plain = program.run_decompositions()
    assert "ftnn" not in plain.graph_module.code
    close(plain.module()(rows(9)), module(rows(9)))


def test_nothing_uses_torch_jit():
    uses = re.compile(r"torch\.jit|torch import jit")
    files = Path(ftnn.__file__).parent.rglob("*.py")
    assert [path.name for path in files if uses.search(path.read_text("utf-8"))] == []


@pytest.mark.slow
def test_scales_and_normalisations_are_exported_to_onnx():
    import onnxruntime

    torch.manual_seed(0)
    layers = [Transfer(4, 5, "F10", scale=True), nn.BatchNorm1d(5), nn.GELU(), nn.Dropout(), nn.LayerNorm(5)]
    module = nn.Sequential(*layers, Partial(5, 3, "F12", PLACES, scale=True), nn.SiLU(), nn.Linear(3, 2))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("scale"):
                parameter.normal_()
        for _ in range(10):
            module(rows(30).float())
    for exported in (module.eval(), ftnn.nn.folded(module)):
        shapes = ({0: Dim("batch")},)
        program = torch.onnx.export(
            exported, (rows().float(),), dynamo=True, dynamic_shapes=shapes, verbose=False
        )
        assert program is not None
        model = program.model_proto
        assert {node.domain for node in model.graph.node} <= {""}, "non-standard ONNX operators"
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        x = rows(7).float()
        (out,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        close(torch.from_numpy(out), module(x).detach(), rtol=1e-5, atol=1e-5)


# ---- autocast and half precision


def autocast() -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def test_under_autocast_a_layer_accepts_the_same_dtypes_as_linear():
    layer, linear = Transfer(4, 3, "F12"), nn.Linear(4, 3)
    with autocast():
        for dtype in (torch.float32, torch.bfloat16):
            x = rows().to(dtype)
            assert layer(x).dtype == linear(x).dtype == torch.bfloat16
    with pytest.raises(DTypeError, match="bfloat16"):
        layer(rows().bfloat16())


def test_autocast_leaves_float64_alone():
    layer = Transfer(4, 3, "F12", dtype=torch.float64)
    with autocast():
        assert torch.equal(layer(rows()), layer(rows()))
        assert layer(rows()).dtype == nn.Linear(4, 3, dtype=torch.float64)(rows()).dtype == torch.float64
        with pytest.raises(DTypeError, match="float64"):
            Transfer(4, 3, "F12")(rows())


@pytest.mark.parametrize("function", ["F12", "F03"])
def test_sums_are_rounded_only_once(function: str):
    """A bfloat16 sum of 4096 numbers near 1 would lose most digits."""
    layer = Transfer(4096, 2, function, bias=False)
    x = torch.rand(3, 4096)
    with autocast():
        out = layer(x)
        grads = torch.autograd.grad(out.float().sum(), list(layer.parameters()))
    assert torch.equal(out, layer(x).bfloat16())
    close(grads, torch.autograd.grad(layer(x).sum(), list(layer.parameters())))


def test_networks_and_memory_run_under_autocast_with_a_float32_state():
    network, cell = Network(4, [5, 3], 2, "F12"), Memory(4, 3)
    x = rows().float()
    with autocast():
        out = network(x)
        sums, state = cell(x[None])
        again, _ = cell(x[None].bfloat16(), state)
    assert out.dtype == sums.dtype == again.dtype == torch.bfloat16
    assert torch.equal(state, cell(x[None])[1])
    close(out.float(), network(x), rtol=0.03, atol=0.03)


@pytest.mark.parametrize("compiler", ["aot_eager"])
def test_compiled_code_respects_autocast(compiler: str):
    torch.compiler.reset()
    layer = Transfer(4, 3, "F03")
    compiled = torch.compile(layer, fullgraph=True, backend=compiler)
    x = rows().float()
    with autocast():
        out, expected = compiled(x), layer(x)
    assert torch.equal(out, expected)
    assert out.dtype == torch.bfloat16
    close(slopes(layer, out.float()), slopes(layer, expected.float()))


def test_a_float16_module_computes_in_float32():
    layer = Transfer(4, 3, "F12").half()
    x = rows().half()
    out = layer(x)
    expected = layer.float()(x.float())
    assert torch.equal(out, expected.half())


# ---- torch.func


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layer", ["transfer", "mixed", "network", "partial"])
def test_forward_and_reverse_mode_derivatives_agree(layer: str, backend: Backend):
    module, x = LAYERS[layer](backend=backend), rows()[0]
    close(jacfwd(module)(x), jacrev(module)(x))
    close(jacfwd(module)(x), torch.autograd.functional.jacobian(module, x))

    def weighted(row: Tensor, weight: Tensor) -> Tensor:
        return (module(row) * weight).sum()

    each = torch.eye(len(module(x)), dtype=torch.float64)
    by_autograd: Any = torch.autograd.functional.hessian
    expected = torch.stack([by_autograd(partial(weighted, weight=weight), x) for weight in each])
    close(hessian(module)(x), expected)
    close(jacrev(jacrev(module))(x), expected)


def test_an_ensemble_can_be_vmapped():
    layers = [Transfer(4, 3, "F20", dtype=torch.float64) for _ in range(3)]
    parameters, constants = torch.func.stack_module_state(list[nn.Module](layers))

    def one(values: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(layers[0], (values, buffers), (x,))

    outs = vmap(one, (0, 0, None))(parameters, constants, rows())
    close(outs, torch.stack([layer(rows()) for layer in layers]))


def test_any_backend_works_under_vmap():
    function = catalogue["F12"]
    x, matrices = tensors(function)

    def one(row: Tensor) -> Tensor:
        return transfer(function, row[None], matrices, "cpu")[0]

    close(vmap(one)(x), transfer(function, x, matrices))
