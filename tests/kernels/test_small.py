"""Small layers: one call of a kernel, whose vectors hold samples."""

import math
from typing import Any

import pytest
import torch

from ftnn.formula import Function
from ftnn.kernels.backends import compute_backward
from ftnn.kernels.cpu import backend, dense, skipping, small
from ftnn.kernels.cpu.compiler import host_of
from ftnn.kernels.eager import reference
from ftnn.kernels.operands import Kept
from tests.kernels.yardstick import case

F12 = Function("p*sin(q*x + r)")
LOGARITHM = Function("p*log(q*x)", init={"p": (1, 2), "q": (1, 2)})


def test_small_means_few_evaluations_of_vectors_and_few_connections():
    problem = case(F12, 8, 8, 1000)
    target = host_of(problem.x)
    assert small.suits(target, problem.x, problem.matrices)
    whole = case(F12, 32, 32, 1000)
    assert not small.suits(target, whole.x, whole.matrices)
    wide = case(F12, 200, 100, 1)
    assert not small.suits(target, wide.x, wide.matrices)
    empty = case(F12, 3, 2, 0)
    assert not small.suits(target, empty.x, empty.matrices)


@pytest.mark.parametrize("density", [0.1, 1.0])
def test_a_small_layer_needs_no_launch(density: float, monkeypatch: pytest.MonkeyPatch):
    def launched(*_: Any) -> None:
        raise AssertionError("the kernels for large layers were used")

    for module in (dense, skipping):
        monkeypatch.setattr(module, "forward", launched)
    problem = case(F12, 5, 7, 33, density)
    torch.testing.assert_close(
        backend.transfer(problem.program, problem.x, problem.matrices),
        reference.transfer(problem.program, problem.x, problem.matrices),
    )


def test_the_backward_kernel_reports_whether_all_gradients_are_finite():
    problem = case(LOGARITHM, 2, 3, 5, dtype=torch.float64)
    x = problem.x.abs() + 0.5
    names = ("x", "p", "q")
    # 5 samples do not fill their vectors: what fills the rest must not count.
    for lowest, finite in ((0.5, True), (0.0, False), (math.nan, False)):
        x[3, 1] = lowest
        kept = Kept()
        backend.transfer_backward(problem.program, problem.grad, x, problem.matrices, names, None, kept)
        assert kept.finite is finite


def test_what_is_not_finite_is_computed_again_by_the_reference():
    problem = case(LOGARITHM, 2, 3, 5, dtype=torch.float64)
    x = problem.x.abs()
    x[3, 1] = 0
    names = ("x", "p", "q")
    arguments = problem.grad, x, problem.matrices, names
    expected = reference.transfer_backward(problem.program, *arguments)
    results = compute_backward("auto", problem.program, *arguments, None, Kept())
    for result, right in zip(results, expected, strict=True):
        torch.testing.assert_close(result, right, equal_nan=True)
