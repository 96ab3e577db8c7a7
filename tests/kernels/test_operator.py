"""The operators `ftnn::transfer` and `ftnn::transfer_backward`: values, derivatives, torch's checks."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck

from ftnn import Function, catalogue
from ftnn.kernels import Backend, signature, transfer
from tests.kernels._layers import FEED_FORWARD, HERE, constant, function_of, oracle, tensors

GENERATED: tuple[Backend, ...] = ("auto", "cpu")
"""The backends beside the reference, which has its own tests."""


def through(function: Function, backend: Backend) -> Any:
    def run(x: Tensor, *matrices: Tensor) -> Tensor:
        return transfer(function, x, matrices, backend)

    return run


def lowest(name: str) -> float:
    """The lower end of parameters: for p < 0, F07 has a surrogate gradient."""
    return 0.1 if name == "F07" else -1.0


# ---- with torch's own tools


@pytest.mark.slow
@pytest.mark.parametrize("formula", ["F01", "F12", "F20", "p*exp(x + q)", "p + x"])
def test_transfer_passes_opcheck(formula: str):
    function = function_of(formula)
    x, matrices = tensors(function)
    opcheck(torch.ops.ftnn.transfer.default, (x, matrices, [], *signature(function), "auto"))


@pytest.mark.slow
@pytest.mark.parametrize("needed", ["x p q r", "x", "q r"])
@pytest.mark.parametrize("formula", ["F12", "F04"])
def test_transfer_backward_passes_opcheck(formula: str, needed: str):
    function = catalogue[formula]
    x, matrices = tensors(function)
    grad = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    arguments = (grad, x, matrices, [], *signature(function), "auto", needed)
    opcheck(torch.ops.ftnn.transfer_backward.default, arguments)


def test_a_traced_graph_contains_the_operator_as_one_node():
    from torch.fx.experimental.proxy_tensor import make_fx

    function = catalogue["F12"]
    x, matrices = tensors(function)

    def run(x: Tensor, *matrices: Tensor) -> Tensor:
        return transfer(function, x, matrices)

    graph = make_fx(run, tracing_mode="fake")(x, *matrices)
    assert "ftnn.transfer.default" in graph.code


@pytest.mark.filterwarnings("ignore")  # from torch.compile itself
@pytest.mark.parametrize("formula", ["F03", "F12", "F20"])
def test_a_compiled_function_gives_the_same_gradients_bit_for_bit(formula: str):
    function = catalogue[formula]
    x, matrices = tensors(function)
    needed = [t for t in (x, *matrices) if t.requires_grad]

    def run(x: Tensor, *matrices: Tensor) -> Tensor:
        return transfer(function, x, matrices).sin()

    torch.compiler.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    result = torch.autograd.grad(compiled(x, *matrices).sum(), needed)
    for one, other in zip(result, torch.autograd.grad(run(x, *matrices).sum(), needed), strict=True):
        assert torch.equal(one, other)


FIRST_CALL = """
import sys, torch, ftnn
for name in ("F12", "F03"):
    x = torch.rand(20, 30, requires_grad=True)
    ftnn.nn.Transfer(30, 17, name)(x).sum().backward()
    assert x.grad.isfinite().all()
ftnn.nn.Partial(30, 17, "F12", torch.tensor([[0, 1], [3, 29]]))(x).sum().backward()
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.slow
def test_the_first_call_does_not_import_the_torch_compiler():
    """Importing it takes longer than everything else."""
    ended = subprocess.run(
        [sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.stdout == "False\n", ended.stderr


# ---- values


@pytest.mark.parametrize("backend", GENERATED)
@pytest.mark.parametrize("name", FEED_FORWARD)
def test_catalogue_values_match_numpy(name: str, backend: Backend):
    function = catalogue[name]
    x, matrices = tensors(function, 5, 7, 3)
    result = transfer(function, x, matrices, backend)
    torch.testing.assert_close(result, oracle(function, x, matrices), rtol=1e-12, atol=1e-12)


def test_equal_functions_take_matrices_in_the_order_of_their_own_text():
    first, second = Function("p*sin(q*x)"), Function("sin(x*q)*p")
    assert first == second
    assert first.parameters == ("p", "q")
    assert second.parameters == ("q", "p")
    x, matrices = tensors(first)
    by_name = dict(zip(first.parameters, matrices, strict=True))
    expected = transfer(first, x, matrices)
    torch.testing.assert_close(transfer(second, x, [by_name[n] for n in second.parameters]), expected)


# ---- gradients


@pytest.mark.parametrize("name", FEED_FORWARD)
def test_catalogue_gradients_match_finite_differences(name: str):
    function = catalogue[name]
    x, matrices = tensors(function, low=lowest(name), seed=3)
    assert gradcheck(through(function, "auto"), (x, *matrices), atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("name", FEED_FORWARD)
def test_catalogue_second_derivatives_match_finite_differences(name: str):
    function = catalogue[name]
    x, matrices = tensors(function, 2, 2, 2, low=lowest(name), seed=3)
    assert gradgradcheck(through(function, "auto"), (x, *matrices), atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("formula", ["F12", "F19", "p*tanh(q*x)", "p*exp(x + q)"])
def test_parameter_gradients_of_a_second_derivative_loss_match_finite_differences(
    formula: str, backend: Backend
):
    """The loss of a differential equation: second derivatives by the input, then gradients."""
    function = function_of(formula)
    _, first = tensors(function, 1, 1, 4, seed=1)
    _, second = tensors(function, 1, 4, 1, seed=2)
    inputs = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None]

    def network(x: Tensor, matrices: list[Tensor], backend: Backend) -> Tensor:
        count = len(function.parameters)
        hidden = torch.tanh(transfer(function, x, matrices[:count], backend))
        return transfer(function, hidden, matrices[count:], backend)

    def residual(matrices: list[Tensor], backend: Backend) -> Tensor:
        x = inputs.clone().requires_grad_()
        u = network(x, matrices, backend)
        (u_x,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
        return ((u_xx + u) ** 2).mean()

    matrices = [*first, *second]
    loss = residual(matrices, backend)
    slopes = torch.autograd.grad(loss, matrices)
    # Central differences of the loss, one element of each matrix at a time.
    for n, (matrix, slope) in enumerate(zip(matrices, slopes, strict=True)):
        moved: list[Tensor] = []
        for step in (1e-5, -1e-5):
            other = matrix.detach().clone()
            other.view(-1)[0] += step
            moved.append(residual([*matrices[:n], other, *matrices[n + 1 :]], backend).detach())
        expected = (moved[0] - moved[1]) / 2e-5
        torch.testing.assert_close(slope.view(-1)[0], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("backend", HERE)
def test_third_derivatives_of_a_network_match_sympy(backend: Backend):
    """u(t) of two layers: u''' by autograd against SymPy's own third derivative."""
    sympy: Any = pytest.importorskip("sympy")
    first, second = Function("p*sin(q*x + r)"), Function("p*tanh(x)")
    a = [torch.tensor([[v, w]], dtype=torch.float64) for v, w in ((0.7, 0.4), (1.1, -0.8), (0.2, 0.5))]
    b = [torch.tensor([[0.9], [1.3]], dtype=torch.float64)]
    t = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None].requires_grad_()
    u = transfer(second, transfer(first, t, a, backend), b, backend)
    for _ in range(3):
        (u,) = torch.autograd.grad(u.sum(), t, create_graph=True)
    s = sympy.Symbol("s")
    columns = zip(*(m[0].tolist() for m in a), b[0][:, 0].tolist(), strict=True)
    whole = sum(w * sympy.tanh(p * sympy.sin(q * s + r)) for p, q, r, w in columns)
    true = sympy.lambdify(s, sympy.diff(whole, s, 3), "math")
    expected = torch.tensor([[true(v)] for v in t.detach()[:, 0].tolist()], dtype=torch.float64)
    torch.testing.assert_close(u.detach(), expected, rtol=1e-10, atol=1e-10)


def test_mixed_second_derivatives_are_symmetric():
    function = catalogue["F12"]
    x, matrices = tensors(function, 1, 1, 1)
    out = transfer(function, x, matrices)
    p, q, r = matrices
    inputs: list[Tensor] = [x, p, q, r]
    first = torch.autograd.grad(out, inputs, create_graph=True)
    second = [
        [torch.autograd.grad(s, i, create_graph=True, allow_unused=True)[0] for i in inputs] for s in first
    ]
    for i in range(4):
        for j in range(4):
            torch.testing.assert_close(second[i][j], second[j][i])


@pytest.mark.parametrize("needed", ["x", "p", "q", "r", "xq", "pr", "qr", "xpr"])
@pytest.mark.parametrize(("name", "backend"), [("F04", "auto"), ("F12", "auto"), ("F12", "reference")])
def test_unneeded_gradients_are_not_computed_and_the_others_are_unchanged(
    name: str, backend: Backend, needed: str
):
    function = catalogue[name]
    x, matrices = tensors(function)
    expected = torch.autograd.grad(transfer(function, x, matrices, "reference").sum(), (x, *matrices))
    leaves = [t.detach().requires_grad_(n in needed) for n, t in zip("xpqr", (x, *matrices), strict=True)]
    transfer(function, leaves[0], leaves[1:], backend).sum().backward()
    for n, tensor, slope in zip("xpqr", leaves, expected, strict=True):
        if n in needed:
            torch.testing.assert_close(tensor.grad, slope)
        else:
            assert tensor.grad is None


@pytest.mark.parametrize("backend", ["auto", "cpu"])
def test_constants_get_no_gradient_even_if_they_require_one(backend: Backend):
    function = catalogue["F20"]
    x, (p, q, u) = tensors(function)
    u.requires_grad_()
    transfer(function, x, [p, q, u], backend).sum().backward()
    assert p.grad is not None
    assert u.grad is None


def test_nothing_is_recorded_if_nothing_needs_a_gradient():
    function = catalogue["F12"]
    x, matrices = tensors(function)
    with torch.no_grad():
        assert transfer(function, x, matrices).grad_fn is None
    with torch.inference_mode():
        assert not transfer(function, x, matrices).requires_grad
    assert transfer(function, x.detach(), [m.detach() for m in matrices]).grad_fn is None


@pytest.mark.parametrize("backend", GENERATED)
def test_rect_ada_has_its_surrogate_gradient(backend: Backend):
    function = catalogue["F07"]
    x = torch.tensor([[2.0, -3.0]], dtype=torch.float64, requires_grad=True)
    p = torch.tensor([[-0.5], [0.25]], dtype=torch.float64, requires_grad=True)
    u = constant(function, "u", 2, 1, torch.float64)
    transfer(function, x, [p, u], backend).sum().backward()
    torch.testing.assert_close(p.grad, u * x.detach().T)
    torch.testing.assert_close(x.grad, (p.detach().clamp(min=0) * u).T)


# ---- shapes, dtypes, and numbers that are not finite


@pytest.mark.parametrize("backend", GENERATED)
@pytest.mark.parametrize(("batch", "ins", "outs"), [(0, 3, 2), (1, 1, 1), (5, 1, 3), (1, 4, 9)])
@pytest.mark.parametrize("formula", ["F12", "F03"])
def test_all_sizes_work_including_an_empty_batch(
    formula: str, batch: int, ins: int, outs: int, backend: Backend
):
    function = catalogue[formula]
    x, matrices = tensors(function, batch, ins, outs)
    result = transfer(function, x, matrices, backend)
    torch.testing.assert_close(result, oracle(function, x, matrices))
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
    assert all(m.grad is not None and m.grad.shape == m.shape for m in matrices)
    if batch == 0:
        assert all((m.grad == 0).all() for m in matrices)


@pytest.mark.parametrize("backend", GENERATED)
@pytest.mark.parametrize("formula", ["F12", "F03"])
def test_strided_tensors_are_supported(formula: str, backend: Backend):
    function = catalogue[formula]
    x, matrices = tensors(function, 6, 4, 8)
    strided = [m.detach().T.contiguous().T.requires_grad_() for m in matrices]
    result = transfer(function, x[::2], strided, backend)
    torch.testing.assert_close(result, oracle(function, x[::2], matrices))
    # Gradients that are expanded or strided, too.
    result.sum().backward()
    expected = torch.autograd.grad(transfer(function, x[::2], matrices, "reference").sum(), matrices)
    torch.testing.assert_close([m.grad for m in strided], list(expected))


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("formula", ["F12", "F03"])
def test_results_have_the_dtype_of_the_input(formula: str, dtype: torch.dtype, backend: Backend):
    function = catalogue[formula]
    x, matrices = tensors(function, dtype=dtype)
    result = transfer(function, x, matrices, backend)
    assert result.dtype == dtype
    tolerance = 40 * torch.finfo(dtype).eps
    torch.testing.assert_close(result.double(), oracle(function, x, matrices), rtol=tolerance, atol=tolerance)
    result.sum().backward()
    assert {t.grad.dtype for t in (x, *matrices) if t.grad is not None} == {dtype}


@pytest.mark.parametrize("backend", GENERATED)
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", FEED_FORWARD)
def test_nan_and_infinity_affect_only_their_own_sample(name: str, wrong: float, backend: Backend):
    function = catalogue[name]
    x, matrices = tensors(function)
    with torch.no_grad():
        x[1, 2] = wrong
    result = transfer(function, x, matrices, backend)
    torch.testing.assert_close(result, oracle(function, x, matrices), equal_nan=True)
    assert result[[0, 2]].isfinite().all()
