"""Update rules are formulas; the built-in ones match the torch optimisers of the same name."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ftnn
from ftnn.errors import FormulaError, FtnnError
from ftnn.kernels.cpu.compiler import host, kernel
from ftnn.kernels.loops import updates
from ftnn.training import RULES, Rule, fit
from ftnn.training._rules import CompiledRule
from ftnn.training.compiled.buffers import address, aligned_zeros
from ftnn.training.compiled.runner import Calls
from tests.training.problems import blobs, network

Array = np.ndarray[Any, np.dtype[Any]]
Make = Callable[[list[Tensor], float], torch.optim.Optimizer]
ANY_RULE: Any = Rule
"""For arguments of the wrong type."""
OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p, decay: torch.optim.SGD(p, 0.01, weight_decay=decay),
    "momentum": lambda p, decay: torch.optim.SGD(p, 0.01, momentum=0.9, weight_decay=decay),
    "nesterov": lambda p, decay: torch.optim.SGD(p, 0.01, momentum=0.9, nesterov=True, weight_decay=decay),
    "rmsprop": lambda p, decay: torch.optim.RMSprop(p, 0.01, weight_decay=decay),
    "adam": lambda p, decay: torch.optim.Adam(p, 0.01, weight_decay=decay),
    "adamw": lambda p, decay: torch.optim.AdamW(p, 0.01, weight_decay=decay),
}


class CompiledSteps:
    """A rule on one array, in generated code."""

    def __init__(self, rule: CompiledRule, start: Array):
        self.rule, self.count = rule, 0
        self.p, self.g = aligned_zeros(start.shape, "float64"), aligned_zeros(start.shape, "float64")
        self.p[:] = start
        states = [aligned_zeros(start.shape, "float64") for _ in rule.states]
        self._scalars = aligned_zeros(updates.FIRST + len(rule.update.scalars), "float64")
        self._calls = Calls()
        args = updates.UpdateArgs(
            vectors=start.size // host("float64").lanes, parameters=address(self.p),
            gradients=address(self.g), states=self._calls.table(states), scalars=address(self._scalars),
        )  # fmt: skip
        self._calls.call(kernel(updates.apply_update, rule.update, host("float64")), args)

    def step(self, g: Array, rate: float) -> Array:
        self.count += 1
        self.g[:] = g
        self._scalars[: updates.FIRST] = 1, np.inf
        self._scalars[updates.FIRST :] = self.rule.scalars([rate], [self.count])[0]
        self._calls.run(1)
        return self.p


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="other CPUs are as they are")
def test_parameters_that_fade_end_at_zero_and_not_as_subnormal_numbers():
    """CPUs take up to a hundred times as long for those."""
    fading = CompiledSteps(Rule("p/2 + g").compiled(0.0), np.ones(8))
    for _ in range(1060):
        fading.step(np.zeros(8), 0.1)
    assert not fading.p.any()
    tiny = np.finfo(np.float64).tiny
    assert np.array([tiny])[0] / 2 > 0  # outside training, this thread computes as before


@pytest.mark.parametrize("decay", [0.0, 0.03])
@pytest.mark.parametrize("name", RULES)
def test_200_steps_of_each_rule_match_torch(name: str, decay: float):
    random = np.random.default_rng(3)
    start = random.normal(size=64)
    torch_parameter = torch.from_numpy(start.copy()).requires_grad_()
    optimizer = OPTIMIZERS[name]([torch_parameter], decay)
    rule = RULES[name].compiled(decay)
    on_tensors, compiled = torch.from_numpy(start.copy()), CompiledSteps(rule, start)
    states = [torch.zeros(64, dtype=torch.float64) for _ in rule.states]
    for step in range(1, 201):
        g, rate = random.normal(size=64), 0.01 * (1 + 0.5 * np.sin(step))
        for group in optimizer.param_groups:
            group["lr"] = rate
        torch_parameter.grad = torch.from_numpy(g.copy())
        optimizer.step()
        on_tensors, states = rule.step_on(on_tensors, torch.from_numpy(g), states, rate, step)
        expected = torch_parameter.detach().numpy()
        np.testing.assert_allclose(on_tensors.numpy(), expected, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(compiled.step(g, rate), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", RULES)
def test_each_rule_trains_a_network_in_half_precision(name: str):
    x, y = blobs(samples=200)
    losses = [
        fit(network(dtype=dtype), x, y, optimizer=name, engine="torch", learning_rate=0.02).loss
        for dtype in (torch.float16, torch.float32)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_a_custom_rule_trains_equally_in_both_engines():
    rule = Rule(
        "p - rate*sign(m)*min(abs(m), c)", state={"m": "b*m + (1 - b)*g"}, constants={"b": 0.8, "c": 0.5}
    )
    x, y = blobs(samples=64)
    nets = [network("F12", (6, 5)), network("F12", (6, 5))]
    for net, engine in zip(nets, ("compiled", "torch"), strict=True):
        ftnn.training.fit(
            net, x, y, optimizer=rule, learning_rate=0.05, epochs=3, batch_size=16, engine=engine
        )  # pyright: ignore[reportArgumentType]
    for one, other in zip(*(net.parameters() for net in nets), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rule("p - rate*q"), r"unknown symbol 'q'; expected one of p, g, rate.*\n.*\n +\^"),
        (lambda: Rule("p - rate*"), "this is not a formula"),
        (lambda: Rule("p - rate*g/v", {"v": "0.9*v"}), "not finite at its first step"),
        (lambda: Rule("p - rate"), "does not use the gradient"),
        (lambda: Rule("p - rate*g", {"rate": "g"}), "'rate' cannot name a state"),
        (
            lambda: Rule("p - rate*pi", {"pi": "0.9*pi + g"}),
            "'pi' cannot name a state .*other than functions, pi",
        ),
        (lambda: Rule("p - rate*g", {"class": "g"}), "'class' cannot name a state"),
        (lambda: Rule("p - rate*g", {"é": "g"}), "'é' cannot name a state"),
        (lambda: Rule("p - rate*g", constants={"sin": 1.0}), "'sin' cannot name a state or a constant"),
        (lambda: ANY_RULE("p - rate*g", {3: "g"}), "3 cannot name a state"),
        (lambda: ANY_RULE("p - rate*g", "m"), r"state='m' must be a dictionary by name, such as \{'m': "),
        (lambda: ANY_RULE("p - rate*g", None), "state=None must be a dictionary"),
        (lambda: ANY_RULE("p - rate*g", {}, None), r"constants=None must be .*such as \{'eps': 1e-08\}"),
        (lambda: Rule("p - rate*g*a", constants={"a": float("nan")}), "a=nan must be a finite number"),
        (lambda: Rule("p - rate*m", {"m": "m + g"}, {"m": 1.0}), "both a state and a constant"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(make: Callable[[], Rule], message: str):
    with pytest.raises(FtnnError, match=message):
        make()


def test_a_scalar_may_be_used_alone_and_inside_another():
    rule = Rule("p*(1 - 0.1*rate) - rate*g*(1 - 1/(1 + step)) - rate**2*sign(g)").compiled(0.0)
    start, g = np.linspace(-1, 1, 64), np.linspace(1, 2, 64)
    actual = CompiledSteps(rule, start).step(g, 0.3)
    np.testing.assert_allclose(actual, start * 0.97 - 0.3 * g * 0.5 - 0.09, rtol=1e-13, atol=1e-15)


def test_the_error_for_an_unknown_symbol_points_at_it():
    with pytest.raises(FormulaError) as caught:
        Rule("p - rate*gradient")
    assert (caught.value.start, caught.value.end) == (9, 17)
