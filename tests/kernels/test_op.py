import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck

from ftnn import Function, catalogue
from ftnn.formula._expr import Expr
from ftnn.formula._ops import OPS
from ftnn.formula._text import to_text
from ftnn.kernels import Backend, signature, transfer
from tests.formula.strategies import survey
from tests.kernels._layers import FEED_FORWARD, HERE, constant, function_of, oracle, tensors


def through(function: Function, backend: Backend) -> Any:
    def run(x: Tensor, *matrices: Tensor) -> Tensor:
        return transfer(function, x, matrices, backend)

    return run


def positive(name: str) -> float:
    """Where parameters may start: at a negative p, the slope of F07 is decreed and not true."""
    return 0.1 if name == "F07" else -1.0


# ---- the operators as torch wants them


@pytest.mark.slow
@pytest.mark.parametrize("formula", ["F01", "F12", "F20", "p*exp(x + q)", "p + x"])
def test_the_operator_is_one_as_torch_wants_it(formula: str):
    function = function_of(formula)
    x, matrices = tensors(function)
    opcheck(torch.ops.ftnn.transfer.default, (x, matrices, [], *signature(function), "auto"))


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["x p q r", "x", "q r"])
@pytest.mark.parametrize("formula", ["F12", "F04"])
def test_and_so_is_its_backward(formula: str, wanted: str):
    function = catalogue[formula]
    x, matrices = tensors(function)
    grad = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    arguments = (grad, x, matrices, [], *signature(function), "auto", wanted)
    opcheck(torch.ops.ftnn.transfer_backward.default, arguments)


def test_a_compiled_graph_holds_the_operator_as_one_node():
    from torch.fx.experimental.proxy_tensor import make_fx

    function = catalogue["F12"]
    x, matrices = tensors(function)

    def run(x: Tensor, *matrices: Tensor) -> Tensor:
        return transfer(function, x, matrices)

    graph = make_fx(run, tracing_mode="fake")(x, *matrices)
    assert "ftnn.transfer.default" in graph.code


@pytest.mark.filterwarnings("ignore")  # of torch.compile's own making
@pytest.mark.parametrize("formula", ["F03", "F12", "F20"])
def test_a_compiled_function_gives_the_same_bits_both_ways(formula: str):
    function = catalogue[formula]
    x, matrices = tensors(function)
    wanted = [t for t in (x, *matrices) if t.requires_grad]

    def run(x: Tensor, *matrices: Tensor) -> Tensor:
        return transfer(function, x, matrices).sin()

    torch.compiler.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(x, *matrices).sum(), wanted)
    for one, other in zip(found, torch.autograd.grad(run(x, *matrices).sum(), wanted), strict=True):
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
def test_the_first_call_does_not_import_torchs_compiler():
    """Which takes longer than all the rest of it."""
    ended = subprocess.run(
        [sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.stdout == "False\n", ended.stderr


# ---- values


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("name", FEED_FORWARD)
def test_every_backend_computes_every_catalogue_function(name: str, backend: Backend):
    function = catalogue[name]
    x, matrices = tensors(function, 5, 7, 3)
    found = transfer(function, x, matrices, backend)
    torch.testing.assert_close(found, oracle(function, x, matrices), rtol=1e-12, atol=1e-12)


def test_equal_functions_written_in_another_order_take_their_own_order_of_matrices():
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
def test_gradients_of_every_catalogue_function_are_right(name: str):
    function = catalogue[name]
    x, matrices = tensors(function, low=positive(name), seed=3)
    assert gradcheck(through(function, "auto"), (x, *matrices), atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("name", FEED_FORWARD)
def test_second_derivatives_of_every_catalogue_function_are_right(name: str):
    function = catalogue[name]
    x, matrices = tensors(function, 2, 2, 2, low=positive(name), seed=3)
    assert gradgradcheck(through(function, "auto"), (x, *matrices), atol=1e-8, rtol=1e-6)


@pytest.mark.slow
def test_gradients_of_two_hundred_drawn_formulas_with_every_operation_in_twenty_of_them():
    def check(expr: Expr) -> None:
        function = Function(to_text(expr))
        x, matrices = tensors(function, 1, 2, 1)
        assert gradcheck(through(function, "auto"), (x, *matrices), atol=1e-7, rtol=1e-5)
        expected = transfer(function, x, matrices, "reference")
        torch.testing.assert_close(transfer(function, x, matrices, "auto"), expected, rtol=1e-11, atol=1e-11)

    formulas, counts = survey(check, least=20, total=200)
    assert len(formulas) >= 200
    assert {op: counts[op] for op in OPS if counts[op] < 20} == {}


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("formula", ["F12", "F19", "p*tanh(q*x)", "p*exp(x + q)"])
def test_the_third_derivative_of_a_network_for_physics(formula: str, backend: Backend):
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


def test_mixed_derivatives_may_be_taken_in_any_order():
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
@pytest.mark.parametrize("name", ["F04", "F12"])
def test_a_gradient_that_is_not_asked_for_is_not_made_and_the_others_are_the_same(name: str, needed: str):
    function = catalogue[name]
    x, matrices = tensors(function)
    expected = torch.autograd.grad(transfer(function, x, matrices, "reference").sum(), (x, *matrices))
    given = [t.detach().requires_grad_(n in needed) for n, t in zip("xpqr", (x, *matrices), strict=True)]
    transfer(function, given[0], given[1:]).sum().backward()
    for n, tensor, slope in zip("xpqr", given, expected, strict=True):
        if n in needed:
            torch.testing.assert_close(tensor.grad, slope)
        else:
            assert tensor.grad is None


@pytest.mark.parametrize("backend", ["auto", "cpu"])
def test_a_constant_has_no_gradient_even_if_it_asks_for_one(backend: Backend):
    function = catalogue["F20"]
    x, (p, q, u) = tensors(function)
    u.requires_grad_()
    transfer(function, x, [p, q, u], backend).sum().backward()
    assert p.grad is not None
    assert u.grad is None


def test_nothing_is_recorded_where_nothing_needs_a_gradient():
    function = catalogue["F12"]
    x, matrices = tensors(function)
    with torch.no_grad():
        assert transfer(function, x, matrices).grad_fn is None
    with torch.inference_mode():
        assert not transfer(function, x, matrices).requires_grad
    assert transfer(function, x.detach(), [m.detach() for m in matrices]).grad_fn is None


@pytest.mark.parametrize("backend", HERE)
def test_the_decree_of_rect_ada_is_kept(backend: Backend):
    function = catalogue["F07"]
    x = torch.tensor([[2.0, -3.0]], dtype=torch.float64, requires_grad=True)
    p = torch.tensor([[-0.5], [0.25]], dtype=torch.float64, requires_grad=True)
    u = constant(function, "u", 2, 1, torch.float64)
    transfer(function, x, [p, u], backend).sum().backward()
    torch.testing.assert_close(p.grad, u * x.detach().T)
    torch.testing.assert_close(x.grad, (p.detach().clamp(min=0) * u).T)


# ---- shapes, dtypes, and numbers that are not finite


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize(("batch", "ins", "outs"), [(0, 3, 2), (1, 1, 1), (5, 1, 3), (1, 4, 9)])
@pytest.mark.parametrize("formula", ["F12", "F03"])
def test_any_size_works_an_empty_batch_too(formula: str, batch: int, ins: int, outs: int, backend: Backend):
    function = catalogue[formula]
    x, matrices = tensors(function, batch, ins, outs)
    found = transfer(function, x, matrices, backend)
    torch.testing.assert_close(found, oracle(function, x, matrices))
    found.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
    assert all(m.grad is not None and m.grad.shape == m.shape for m in matrices)
    if batch == 0:
        assert all((m.grad == 0).all() for m in matrices)


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("formula", ["F12", "F03"])
def test_tensors_need_not_be_contiguous(formula: str, backend: Backend):
    function = catalogue[formula]
    x, matrices = tensors(function, 6, 4, 8)
    turned = [m.detach().T.contiguous().T.requires_grad_() for m in matrices]
    found = transfer(function, x[::2], turned, backend)
    torch.testing.assert_close(found, oracle(function, x[::2], matrices))
    # Gradients that are expanded or turned, too.
    found.sum().backward()
    expected = torch.autograd.grad(transfer(function, x[::2], matrices, "reference").sum(), matrices)
    torch.testing.assert_close([m.grad for m in turned], list(expected))


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("formula", ["F12", "F03"])
def test_it_computes_in_the_dtype_it_is_given(formula: str, dtype: torch.dtype, backend: Backend):
    function = catalogue[formula]
    x, matrices = tensors(function, dtype=dtype)
    found = transfer(function, x, matrices, backend)
    assert found.dtype == dtype
    tolerance = 40 * torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), oracle(function, x, matrices), rtol=tolerance, atol=tolerance)
    found.sum().backward()
    assert {t.grad.dtype for t in (x, *matrices) if t.grad is not None} == {dtype}


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", FEED_FORWARD)
def test_what_is_not_finite_comes_out_so_and_only_where_it_belongs(name: str, wrong: float, backend: Backend):
    function = catalogue[name]
    x, matrices = tensors(function)
    with torch.no_grad():
        x[1, 2] = wrong
    found = transfer(function, x, matrices, backend)
    torch.testing.assert_close(found, oracle(function, x, matrices), equal_nan=True)
    assert found[[0, 2]].isfinite().all()
