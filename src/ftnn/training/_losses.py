"""Losses: the softmax, or formulas in an output `y` and its target `t`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from torch import Tensor, nn

from ftnn.errors import FtnnError
from ftnn.formula._derive import differentiate
from ftnn.formula._expr import Expr
from ftnn.formula._names import OUTPUT, TARGET
from ftnn.formula._parse import error_in, parse
from ftnn.kernels import evaluate

SOFTMAX, LOGISTIC = "softmax", "logistic"
FORMULAS = {
    "squared": "(y - t)**2/2",
    "absolute": "abs(y - t)",
    "huber": "where(abs(y - t) < 1, (y - t)**2/2, abs(y - t) - 0.5)",
    LOGISTIC: "softplus(y) - t*y",
}
"""Losses with a name. The loss of a sample is the sum over its outputs."""
NAMES = (SOFTMAX, *FORMULAS)


@dataclass(frozen=True)
class LossFormula:
    """A loss: the softmax, which has no formula here, or an elementwise formula."""

    text: str
    """As the user wrote it."""
    value: Expr | None = None
    slope: Expr | None = None
    """The derivative with respect to the output."""

    def of_samples(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample, (samples,), from labels (samples,) or targets (samples, out)."""
        if self.value is None:
            return nn.functional.cross_entropy(outputs, y, reduction="none")
        return self._of_outputs(self.value, outputs, y).sum(1)

    @staticmethod
    def _of_outputs(value: Expr, outputs: Tensor, y: Tensor) -> Tensor:
        return evaluate((value,), {OUTPUT: outputs, TARGET: y})[0].expand_as(outputs)

    def check_start(self, outputs: Tensor, y: Tensor) -> None:
        """Refuse a user's formula that is not finite for an untrained network: no training could mend it.

        **Arguments:**

        - `outputs`, `y`: (samples, out); outputs that are not finite themselves have another cause.
        """
        assert self.value is not None
        losses = self._of_outputs(self.value, outputs, y)
        bad = (~losses.isfinite() & outputs.isfinite()).nonzero()
        if len(bad):
            place = tuple(bad[0])
            raise error_in(
                self.text,
                f"the loss is {losses[place]:.3g} at y = {outputs[place]:.3g}, an output before training, "
                f"and its target t = {y[place]:.3g}; expected a finite number for every target",
            )


def loss_formula(loss: str) -> LossFormula:
    """A loss from its name, or from a formula in `y` and `t` such as `"log(cosh(y - t))"`."""
    if not isinstance(loss, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FtnnError(f"expected a loss, such as 'squared' or 'log(cosh(y - t))', got {loss!r}")
    return _read(loss)


def loss_for(loss: str | None, *, classes: bool) -> str:
    """The loss of a model whose targets are classes, or else standardised numbers; None: the usual one."""
    if loss is None:
        return SOFTMAX if classes else "squared"
    loss_formula(loss)
    if classes and loss != SOFTMAX:
        raise FtnnError(f"loss={loss!r} is for numbers, but the targets are classes: expected {SOFTMAX!r}")
    if not classes and loss in (SOFTMAX, "logistic"):
        what = "classes" if loss == SOFTMAX else "targets of 0 and 1"
        raise FtnnError(
            f"loss={loss!r} is for {what}, but the targets are standardised numbers: expected 'squared', "
            "'absolute', 'huber', or a formula in y and t such as 'log(cosh(y - t))'"
        )
    return loss


@lru_cache(maxsize=256)
def _read(loss: str) -> LossFormula:
    if loss == SOFTMAX:
        return LossFormula(loss)
    if loss not in FORMULAS and loss not in (OUTPUT, TARGET) and loss.isidentifier():
        raise FtnnError(
            f"unknown loss {loss!r}; expected one of {', '.join(NAMES)}, or a formula in y and t such as "
            "'log(cosh(y - t))'"
        )
    text = FORMULAS.get(loss, loss)
    value = parse(text)
    for name in sorted(value.names - {OUTPUT, TARGET}):
        raise error_in(text, f"a loss is a formula in y and t; {name!r} is unknown", name)
    if OUTPUT not in value.names:
        raise error_in(text, "the loss does not depend on the output y")
    return LossFormula(loss, value, differentiate(value, OUTPUT))
