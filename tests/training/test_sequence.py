"""Training pair by pair over a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ftnn
from ftnn.errors import FtnnError
from ftnn.nn import MemoryNetwork
from ftnn.training import fit_sequence, initialise


def pi_pairs(pairs: int) -> tuple[Any, Any]:
    digits = ftnn.data.pi_digits(pairs + 1)
    return np.eye(10)[digits[:-1]], digits[1:]


def net(hidden: int = 12, dtype: torch.dtype = torch.float64, **more: Any) -> MemoryNetwork:
    memory_network = MemoryNetwork(10, hidden, 10, dtype=dtype, **more)
    initialise(memory_network, 0)
    return memory_network


@pytest.mark.parametrize("activation", ["logistic", "relu", "tanh"])
def test_both_engines_train_a_sequence_to_the_same_result(activation: Any) -> None:
    x, y = pi_pairs(21)
    compiled, other = net(activation=activation), net(activation=activation)
    one = fit_sequence(compiled, x, y, epochs=4, engine="compiled")
    two = fit_sequence(other, x, y, epochs=4, engine="torch")
    assert one.engine == "compiled"
    np.testing.assert_allclose([p.loss for p in one.passes], [p.loss for p in two.passes], rtol=1e-10)
    for actual, expected in zip(compiled.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("pairs", [6, 7])
def test_a_kept_state_makes_passes_one_long_sequence(engine: Any, pairs: int) -> None:
    x, y = pi_pairs(pairs)
    kept, long, fresh = net(), net(), net()
    state = kept.memory.reset(1)
    fit_sequence(kept, x, y, epochs=3, engine=engine, state=state)
    fit_sequence(long, np.tile(x, (3, 1)), np.tile(y, 3), epochs=1, engine=engine)
    fit_sequence(fresh, x, y, epochs=3, engine=engine, keep_state=False)
    for actual, expected in zip(kept.parameters(), long.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(kept.memory.matrix("q"), fresh.memory.matrix("q"), rtol=1e-6, atol=1e-9)
    assert state.abs().min() > 0
    # Continuing from the state gives what one run gives.
    parts = net()
    state = parts.memory.reset(1)
    for done in range(3):
        more: Any = {"done": done, "epochs": done + 1, "state": state}
        fit_sequence(parts, x, y, engine=engine, **more)
    for actual, expected in zip(parts.parameters(), kept.parameters(), strict=True):
        assert torch.equal(actual, expected)


def test_a_state_of_the_wrong_shape_or_type_is_refused() -> None:
    x, y = pi_pairs(3)
    for state in (torch.zeros(12, 10), torch.zeros(1, 12, 10), "zeros"):
        with pytest.raises(FtnnError, match=r"expected a tensor \(1, out, in\): torch.float64 \(1, 12, 10\)"):
            fit_sequence(net(), x, y, epochs=1, state=state)  # pyright: ignore[reportArgumentType]


def test_two_steps_match_the_papers_rule() -> None:
    """Two pairs by hand: tanh(p*x + q*C + r), logistic units, softmax, an update per pair, C constant."""
    x, y = pi_pairs(2)
    trained = net(hidden=3)
    p, q, r = (trained.memory.matrix(name).detach().numpy().copy() for name in "pqr")
    b = np.zeros(3)
    w, c = trained.output.weight.detach().numpy().copy(), np.zeros(10)
    cell = np.zeros((3, 10))
    rate = 2.0**-4
    for t in range(2):
        new = np.tanh(p * x[t] + q * cell + r)
        h = 1 / (1 + np.exp(-(new.sum(1) + b)))
        out = w @ h + c
        share = np.exp(out - out.max()) / np.exp(out - out.max()).sum()
        delta = np.eye(10)[y[t]] - share  # the paper's δ is -∂E/∂y
        delta_hidden = (w.T @ delta) * h * (1 - h)
        slope = 1 - new**2
        w += rate * np.outer(delta, h)
        c += rate * delta
        p += rate * delta_hidden[:, None] * slope * x[t]
        q += rate * delta_hidden[:, None] * slope * cell
        r += rate * delta_hidden[:, None] * slope
        b += rate * delta_hidden
        cell = new
    fit_sequence(trained, x, y, epochs=1)
    for name, expected in (("p", p), ("q", q), ("r", r)):
        np.testing.assert_allclose(
            trained.memory.matrix(name).detach().numpy(), expected, rtol=1e-12, atol=1e-15
        )
    np.testing.assert_allclose(trained.output.weight.detach().numpy(), w, rtol=1e-12)
    np.testing.assert_allclose(trained.output.bias.detach().numpy(), c, rtol=1e-12)


def test_a_short_sequence_is_memorised() -> None:
    x, y = pi_pairs(24)
    trained = net(hidden=64, dtype=torch.float32)
    history = fit_sequence(trained, x, y, epochs=1500)
    assert history.accuracies[-50:].max() == 100


def test_gradients_go_back_through_a_window() -> None:
    x, y = pi_pairs(20)
    one_step, through = net(), net(through_time=True)
    fit_sequence(one_step, x, y, epochs=1, window=5)
    history = fit_sequence(through, x, y, epochs=1, window=5)
    assert history.engine == "torch"
    assert not torch.equal(one_step.memory.theta["q"], through.memory.theta["q"])
    # The same by plain autograd: the mean loss of each window, from the state that the last one left.
    oracle = net(through_time=True)
    state = None
    for first in range(0, 20, 5):
        out, state = oracle(torch.tensor(x[first : first + 5])[:, None], state)
        loss = torch.nn.functional.cross_entropy(out[:, 0], torch.tensor(y[first : first + 5]))
        grads = torch.autograd.grad(loss, list(oracle.parameters()))
        with torch.no_grad():
            for parameter, grad in zip(oracle.parameters(), grads, strict=True):
                parameter -= 2.0**-4 * grad
        state = state.detach()
    for actual, expected in zip(through.parameters(), oracle.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


def test_a_sequence_of_numbers_can_be_learned_with_squared_errors() -> None:
    wave = np.sin(np.arange(41) / 3)
    trained = MemoryNetwork(1, 16, 1, dtype=torch.float64)
    initialise(trained, 0)
    history = fit_sequence(trained, wave[:-1, None], wave[1:], epochs=200)
    assert history.passes[-1].accuracy is None
    assert history.passes[-1].loss < 0.5 * history.passes[0].loss


def test_callbacks_can_end_training_and_invalid_settings_are_named() -> None:
    x, y = pi_pairs(5)
    history = fit_sequence(net(), x, y, epochs=9, callbacks=[lambda p, n: p.epoch == 2])
    assert len(history.passes) == 2
    with pytest.raises(FtnnError, match="window=0"):
        fit_sequence(net(), x, y, window=0)
    with pytest.raises(FtnnError, match="pair by pair"):
        fit_sequence(net(), x, y, window=2, engine="compiled")


def test_a_diverging_sequence_returns_a_history() -> None:
    x, y = pi_pairs(10)
    trained = net(dtype=torch.float32)
    history = fit_sequence(trained, x, y, gamma=126, epochs=9, clip=None)
    assert history.failed is not None
    assert "not finite in epoch" in history.failed
    assert all(torch.isfinite(p).all() for p in trained.parameters())
