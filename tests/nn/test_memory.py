"""`Memory`, against the paper's equations written as loops."""

import copy
import math
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ftnn
from ftnn.errors import DTypeError, FtnnError, ShapeError
from ftnn.formula._balance import balanced
from ftnn.nn import Memory, MemoryNetwork
from ftnn.nn._memory import FORMULA

Array = np.ndarray[Any, Any]
T, B, N, M = 6, 3, 4, 2  # time, batch, in, out
FORMULAS = ["memory", "p*x + q*C", "sin(p*x + C)*q", "p*x*C + r"]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(function: Any = "memory", **options: Any) -> Memory:
    """A layer with parameters large enough for the memory to matter."""
    layer = Memory(N, M, function, dtype=torch.float64, **options)
    for number, parameter in enumerate(layer.parameters()):
        parameter.data.copy_(random(*parameter.shape, seed=10 + number))
    return layer


def numbers(layer: Memory) -> tuple[Array, ...]:
    return tuple(layer.matrix(name).detach().numpy() for name in layer.function.parameters)


def by_the_paper(layer: Memory, x: Array, cell: Array) -> tuple[Array, Array]:
    """y_i(t) = Σ_j C_ij(t) + b_i, C_ij(t) = tanh(p_ij x_j(t) + q_ij C_ij(t-1) + r_ij), number by number."""
    p, q, r = numbers(layer)
    bias = np.zeros(M) if layer.bias is None else layer.bias.detach().numpy()
    cell, y = cell.copy(), np.zeros((len(x), x.shape[1], M))
    for t in range(len(x)):
        for b in range(x.shape[1]):
            for i in range(M):
                for j in range(N):
                    cell[b, i, j] = math.tanh(p[i, j] * x[t, b, j] + q[i, j] * cell[b, i, j] + r[i, j])
                    y[t, b, i] += cell[b, i, j]
    return y + bias, cell


def step(formula: str, x: Tensor, C: Tensor, p: Tensor, q: Tensor, r: Tensor) -> Tensor:
    """The formulas above, by hand."""
    match formula:
        case "memory":
            return torch.tanh(p * x + q * C + r)
        case "p*x + q*C":
            return p * x + q * C
        case "sin(p*x + C)*q":
            return torch.sin(p * x + C) * q
        case _:
            return p * x * C + r


def unrolled(formula: str, x: Tensor, cell: Tensor, values: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Plain torch over (batch, out, in), for autograd through all time steps."""
    outs = list[Tensor]()
    for now in x:
        unused = {name: now for name in "pqr" if name not in values}
        cell = step(formula, now[:, None, :], cell, **values, **unused)
        outs.append(cell.sum(-1))
    return torch.stack(outs), cell


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("through_time", [True, False])
def test_outputs_and_state_match_the_papers_equations(bias: bool, through_time: bool):
    layer = make(bias=bias, through_time=through_time)
    x, start = random(T, B, N), random(B, M, N, seed=1)
    for initial in (None, start):
        y, state = layer(x, initial)
        begin = np.zeros((B, M, N)) if initial is None else initial.numpy()
        expected_y, expected_state = by_the_paper(layer, x.numpy(), begin)
        assert y.shape == (T, B, M)
        assert state.shape == (B, M, N)  # a signal for every connection
        np.testing.assert_allclose(y.detach().numpy(), expected_y, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(state.detach().numpy(), expected_state, rtol=1e-12, atol=1e-13)


def test_the_one_step_derivative_matches_the_papers():
    # ∂F/∂p = F'·x, ∂F/∂q = F'·C_{t-1}, ∂F/∂r = F', ∂F/∂x = F'·p with F' = 1 - F², and C_{t-1} constant.
    layer = make(through_time=False)
    x, start, delta = random(T, B, N).requires_grad_(), random(B, M, N, seed=1), random(T, B, M, seed=2)
    p, q, r = numbers(layer)
    by_p, by_q, by_r = (np.zeros((M, N)) for _ in range(3))
    by_x, cell = np.zeros((T, B, N)), start.numpy().copy()
    for t in range(T):
        for b in range(B):
            for i in range(M):
                for j in range(N):
                    before = cell[b, i, j]
                    now = float(x.detach()[t, b, j])
                    cell[b, i, j] = math.tanh(p[i, j] * now + q[i, j] * before + r[i, j])
                    error = float(delta[t, b, i]) * (1 - cell[b, i, j] ** 2)
                    by_p[i, j] += error * now
                    by_q[i, j] += error * before
                    by_r[i, j] += error
                    by_x[t, b, j] += error * p[i, j]
    y, _ = layer(x, start.requires_grad_())
    y.backward(delta)
    for name, expected in (("p", by_p), ("q", by_q), ("r", by_r)):
        grad = layer.theta[name].grad
        assert grad is not None
        np.testing.assert_allclose(grad.T.numpy(), expected, rtol=1e-11)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), by_x, rtol=1e-11)
    assert layer.bias is not None
    torch.testing.assert_close(layer.bias.grad, delta.sum((0, 1)))
    assert start.grad is None  # the previous values are constant


@pytest.mark.parametrize("formula", FORMULAS)
def test_through_time_gradients_match_autograd_through_all_steps(formula: str):
    layer = make(formula, bias=False, through_time=True)
    x, start = random(T, B, N).requires_grad_(), random(B, M, N, seed=1).requires_grad_()
    weight, weight_of_state = random(T, B, M, seed=2), random(B, M, N, seed=3)
    y, state = layer(x, start)
    actual = torch.autograd.grad(
        (y * weight).sum() + (state * weight_of_state).sum(), [x, start, *layer.parameters()]
    )
    values = {
        name: layer.matrix(name).detach().clone().requires_grad_() for name in layer.function.parameters
    }
    plain_y, plain_state = unrolled(formula, x, start, values)
    expected = torch.autograd.grad(
        (plain_y * weight).sum() + (plain_state * weight_of_state).sum(), [x, start, *values.values()]
    )
    torch.testing.assert_close(y, plain_y)
    torch.testing.assert_close(actual[:2], expected[:2])
    torch.testing.assert_close(actual[2:], tuple(grad.T for grad in expected[2:]))


@pytest.mark.parametrize("formula", FORMULAS)
def test_the_one_step_and_through_time_derivatives_differ_only_after_the_first_step(formula: str):
    one_step, through_time = make(formula, through_time=False), make(formula, through_time=True)
    start = random(B, M, N, seed=1)
    for steps, same in ((1, True), (3, False)):
        grads = [
            torch.autograd.grad(layer(random(steps, B, N), start)[0].sum(), list(layer.parameters()))
            for layer in (one_step, through_time)
        ]
        assert all(torch.allclose(a, b) for a, b in zip(*grads, strict=True)) is same


@pytest.mark.parametrize("through_time", [True, False])
def test_a_run_in_pieces_equals_one_long_run(through_time: bool):
    layer = make(through_time=through_time)
    x = random(T, B, N)
    whole, end = layer(x)
    state, parts = None, list[Tensor]()
    for piece in x.split([1, 3, 2]):
        y, state = layer(piece, state)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts), whole)
    torch.testing.assert_close(state, end)
    grads = [torch.autograd.grad(out.sum(), list(layer.parameters())) for out in (torch.cat(parts), whole)]
    torch.testing.assert_close(*grads)  # gradients through the state


def test_reset_gives_zeros_and_detach_stops_gradients():
    layer = make(through_time=True)
    x = random(T, B, N)
    zeros = layer.reset(B)
    assert zeros.shape == (B, M, N)
    assert zeros.dtype == torch.float64
    assert zeros.abs().sum() == 0
    torch.testing.assert_close(layer(x, zeros), layer(x))
    _, state = layer(x)
    assert state.requires_grad
    detached = layer.detach(state)
    assert not detached.requires_grad
    assert torch.equal(detached, state)


def test_the_initial_state_is_not_modified():
    layer = make()
    start = random(B, M, N, seed=1)
    before = start.clone()
    layer(random(T, B, N), start)
    assert torch.equal(start, before)


@pytest.mark.parametrize("shape", [(0, B, N), (T, 0, N), (0, 0, N)])
def test_empty_sequences_and_batches_give_empty_results(shape: tuple[int, ...]):
    layer = make()
    start = random(shape[1], M, N, seed=1)
    y, state = layer(torch.empty(shape, dtype=torch.float64), start)
    assert y.shape == (*shape[:2], M)
    if shape[0] == 0:
        assert torch.equal(state, start)


def test_samples_of_a_batch_are_independent():
    layer = make()
    x = random(T, B, N)
    y, state = layer(x)
    for b in range(B):
        alone_y, alone_state = layer(x[:, b : b + 1])
        torch.testing.assert_close(alone_y[:, 0], y[:, b])
        torch.testing.assert_close(alone_state[0], state[b])


def test_a_memory_layer_can_mix_functions():
    layer = make(ftnn.Mixed(["memory", "p*x + q*C/2", "p*x"], "rows"), bias=False)
    with torch.no_grad():
        layer.matrix("kind").copy_(torch.tensor([[0.0, 1.0, 2.0, 0.0], [2.0, 1.0, 0.0, 1.0]]))
    x = random(T, B, N)
    cell, expected = np.zeros((B, M, N)), np.zeros((T, B, M))
    for t in range(T):
        for i in range(M):
            for j in range(N):
                function = layer.kinds[int(layer.matrix("kind")[i, j])]
                values: dict[str, Any] = {n: layer.matrix(n)[i, j].item() for n in function.parameters}
                if function.has_memory:
                    values["C"] = cell[:, i, j].copy()
                cell[:, i, j] = function(x[t, :, j].numpy(), **values)
        expected[t] = cell.sum(-1)
    y, state = layer(x)
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(state.detach().numpy(), cell, rtol=1e-12)


def test_a_memory_layer_is_a_torch_module():
    layer = make(through_time=True)
    x = random(T, B, N)
    fresh = Memory(N, M, "memory", through_time=True, dtype=torch.float64)
    fresh.load_state_dict(layer.state_dict())
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), fresh):
        torch.testing.assert_close(other(x), layer(x))
        assert other.through_time is True
    assert set(layer.state_dict()) == {"theta.p", "theta.q", "theta.r", "bias"}
    assert layer.extra_repr() == (
        "in_features=4, out_features=2, function=memory, bias=True, through_time=True"
    )
    assert layer.float()(x.float())[0].dtype == torch.float32


def test_a_memory_layer_on_meta_returns_shapes():
    y, state = Memory(N, M, device="meta")(torch.empty(T, B, N, device="meta"))
    assert (y.shape, state.shape) == ((T, B, M), (B, M, N))
    assert y.is_meta


def test_a_memory_layer_learns_to_repeat_the_previous_step():
    torch.manual_seed(0)
    layer = Memory(1, 8, through_time=True)
    out = torch.nn.Linear(8, 1)
    for parameter in layer.theta.parameters():
        torch.nn.init.uniform_(parameter, -1, 1)
    x = torch.randint(2, (8, 16, 1)).float()
    optimizer = torch.optim.Adam([*layer.parameters(), *out.parameters()], lr=0.1)
    loss = torch.tensor(math.inf)
    for _ in range(60):
        optimizer.zero_grad()
        loss = (out(layer(x)[0])[1:] - x[:-1]).square().mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05  # without memory, 0.25 is the best possible


def test_the_default_is_the_papers_formula_with_ranges_that_hold_a_signal():
    torch.manual_seed(0)
    layer = Memory(5, 400)
    assert layer.function == ftnn.Function("tanh(p*x + q*C + r)")
    assert layer.ranges == balanced(layer.function, 5).ranges
    for name, (low, high) in layer.ranges.items():
        assert low <= layer.matrix(name).min() < layer.matrix(name).max() <= high
    _, one = layer(torch.randn(1, 1, 5))
    _, other = layer(torch.randn(1, 1, 5), one)
    silence = torch.zeros(100, 1, 5)
    kept = (layer(silence, one)[1] - layer(silence, other)[1]).abs() / (one - other).abs()
    assert (kept >= 0.1).float().mean() >= 0.5


def test_memory_networks_keep_the_papers_ranges():
    net = MemoryNetwork(3, 2, 2)
    assert net.memory.ranges == dict.fromkeys("pqr", (-0.1, 0.1))
    before = net.memory.matrix("q").clone()
    net.calibrate(torch.randn(7, 4, 3))
    assert net.memory.ranges == dict.fromkeys("pqr", (-0.1, 0.1))
    assert not torch.equal(net.memory.matrix("q"), before)


def test_calibration_makes_one_step_as_large_for_large_inputs_as_for_usual_ones():
    layer = Memory(5, 400)
    variances = []
    for size in (1.0, 30.0):
        x = size * torch.randn(1, 300, 5, generator=torch.Generator().manual_seed(0))
        layer.calibrate(x, torch.Generator().manual_seed(1))
        variances.append(layer(x)[0].var().item())
        assert layer.is_untouched
    assert 0.5 < variances[1] / variances[0] < 2
    again = Memory(5, 400)
    again.calibrate(x, torch.Generator().manual_seed(1))
    assert torch.equal(again.matrix("p"), layer.matrix("p"))


def test_calibration_keeps_given_ranges():
    layer = Memory(5, 40, ftnn.Function("tanh(p*x + q*C + r)", init={"p": (-3, 3)}))
    layer.calibrate(torch.full((4, 2, 5), 100.0) * torch.randn(4, 2, 5))
    assert layer.ranges["p"] == (-3, 3)


def recalled(function: str = FORMULA) -> float:
    """How often a layer, after 60 steps of training, recalls which of 3 symbols came 20 steps ago."""
    random = torch.Generator().manual_seed(0)

    def sequences(batch: int) -> tuple[Tensor, Tensor]:
        symbols = torch.randint(3, (batch,), generator=random)
        x = 0.3 * torch.randn(20, batch, 3, generator=random)
        x[0] += torch.nn.functional.one_hot(symbols, 3)
        return x, symbols

    torch.manual_seed(0)
    layer, out = Memory(3, 16, function, through_time=True), torch.nn.Linear(16, 3)
    optimizer = torch.optim.Adam([*layer.parameters(), *out.parameters()], lr=0.02)
    for _ in range(60):
        x, symbols = sequences(64)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(out(layer(x)[0][-1]), symbols).backward()
        optimizer.step()
    x, symbols = sequences(500)
    return float((out(layer(x)[0][-1]).argmax(1) == symbols).float().mean())


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Fastest for small steps while other tests run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_memory_layer_at_its_defaults_learns_what_came_first():
    assert recalled() > 0.7
    assert recalled("memory") < 0.5  # from the paper's ranges it does not


@pytest.mark.parametrize(
    ("x", "state", "kind", "message"),
    [
        (torch.zeros(T, B, 5), None, ShapeError, r"in_features=4.*\(6, 3, 5\).*must be 4"),
        (torch.zeros(B, N), None, ShapeError, r"expects \(time, batch, 4\), not shape \(3, 4\)"),
        (torch.zeros(1, T, B, N), None, ShapeError, r"expects \(time, batch, 4\)"),
        (torch.zeros(T, B, N, dtype=torch.int32), None, DTypeError, "int32"),
        (torch.zeros(T, B, N, dtype=torch.float64), None, DTypeError, "float64.*float32"),
        (
            torch.zeros(T, B, N),
            torch.zeros(B, N, M),
            ShapeError,
            r"state has shape \(3, 4, 2\); expected \(batch, out, in\) = \(3, 2, 4\)",
        ),
        (torch.zeros(T, B, N), torch.zeros(1, M, N), ShapeError, r"state has shape \(1, 2, 4\)"),
        (torch.zeros(T, B, N), torch.zeros(B, M, N).double(), DTypeError, "state is torch.float64.*float32"),
        (
            torch.zeros(T, B, N),
            (torch.zeros(B, M, N),),
            DTypeError,
            "state must be a torch tensor, not tuple",
        ),
    ],
)
def test_wrong_inputs_and_states_are_refused(x: Tensor, state: Any, kind: Any, message: str):
    with pytest.raises(kind, match=message) as caught:
        Memory(N, M)(x, state)
    assert isinstance(caught.value, FtnnError)


def test_the_error_for_a_function_without_memory_suggests_transfer():
    for function in ("F12", "p*x", ftnn.Mixed(["F12", "F03"])):
        with pytest.raises(FtnnError, match=r"has no C.*use ftnn\.nn\.Transfer"):
            Memory(N, M, function)


def test_a_function_whose_memory_folds_away_is_still_a_memory_function():
    layer = Memory(N, M, "p*x + C**0", dtype=torch.float64, bias=False)
    x = random(T, B, N)
    out, state = layer(x)
    terms = x[..., None, :] * layer.matrix("p").detach() + 1
    torch.testing.assert_close(out, terms.sum(-1))
    torch.testing.assert_close(state, terms[-1])
    out.sum().backward()
    torch.testing.assert_close(layer.theta["p"].grad, x.sum((0, 1))[:, None].expand(N, M))
