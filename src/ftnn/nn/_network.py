"""`Network` and `MemoryNetwork`: the paper's models, functional layers and a linear output layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ftnn.errors import ShapeError
from ftnn.formula import Function, Mixed
from ftnn.kernels import Backend
from ftnn.nn._activations import activations_for, inputs_through, torch_activation
from ftnn.nn._connections import AnyFunction, fingerprint, size
from ftnn.nn._feed_forward import FeedForward, Transfer
from ftnn.nn._inputs import check_generator, check_input, typical
from ftnn.nn._memory import Memory

OUTPUT_RANGE = 0.1
"""The linear layer's weights are initially uniform in ± this."""


class Network(nn.Module):
    """Hidden layers of functions with an activation each, then a linear output layer.

    **Arguments:**

    - `in_features`: the number of inputs.
    - `hidden`: the width of each hidden layer.
    - `out_features`: the number of outputs, such as classes; the softmax is part of the loss.
    - `function`: the function of the hidden layers' connections: one for all, or a sequence with one per
        layer.
    - `activation`: `"logistic"`, `"relu"`, `"tanh"`, `"relu20"` (which ends at 20, as on the paper's
        platform) or a formula in x such as `"x*logistic(x)"`: one for all, or a sequence with one per layer.
    - `device`, `dtype`, `backend`: as for [`ftnn.nn.Transfer`][].

    Shapes: (…, in_features) → (…, out_features).
    """

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        out_features: int,
        function: AnyFunction | Sequence[AnyFunction] = "F07",
        activation: str | Sequence[str] = "tanh",
        device: Any = None,
        dtype: torch.dtype | None = None,
        backend: Backend = "auto",
    ):
        super().__init__()
        try:
            widths = [size("hidden", width) for width in hidden]
        except TypeError:
            raise ShapeError(
                f"hidden must be the width of each hidden layer, such as [128, 128], not {hidden!r}"
            ) from None
        self.activations = activations_for(activation, len(widths))
        self._activate = tuple(map(torch_activation, self.activations))
        one_for_all = isinstance(function, str | Function | Mixed)
        functions = [function] * len(widths) if one_for_all else list(function)
        if len(functions) != len(widths):
            raise ShapeError(
                f"function has length {len(functions)}; expected one function, or a sequence of length "
                f"{len(widths)}, one for each hidden layer"
            )
        self.in_features = size("in_features", in_features)
        self.out_features = size("out_features", out_features)
        self.activation = activation if isinstance(activation, str) else self.activations
        sizes = [self.in_features, *widths]
        self.hidden = nn.ModuleList()
        for number, (n, m, f) in enumerate(zip(sizes, widths, functions, strict=False)):
            with torch.device("meta"):  # draw parameters only when it is known where from
                layer = Transfer(n, m, f, dtype=dtype, backend=backend)
            inputs = inputs_through(self.activations[number - 1]) if number else None
            layer._expects = (inputs, len(widths))
            layer.to_empty(device=torch.get_default_device() if device is None else device)
            layer.reset_parameters()
            self.hidden.append(layer)
        self.output = nn.Linear(sizes[-1], self.out_features, device=device, dtype=dtype)
        self._drawn: int | None = None
        """The fingerprint of the output layer's parameters when they were drawn."""
        self.reset_output()

    @property
    def layers(self) -> tuple[FeedForward, ...]:
        """The hidden layers."""
        return tuple(layer for layer in self.hidden if isinstance(layer, FeedForward))

    @torch.no_grad()
    def calibrate(self, x: Tensor, generator: torch.Generator | None = None) -> None:
        """Choose initial ranges for these inputs, layer by layer, and draw all parameters again.

        Ranges that functions give are kept. See [`ftnn.nn.Transfer`][].

        **Arguments:**

        - `x`: typical inputs, (…, in_features); the first 1,000 samples are used.
        """
        x = typical(self, x, self.output.weight.dtype)
        for layer, activate in zip(self.layers, self._activate, strict=True):
            layer._calibrate(x, layer.kinds, generator, len(self.layers))  # a pole below makes x NaN here
            x = activate(layer(x))
        self.reset_output(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all parameters again, from the first layer to the last."""
        for layer in self.layers:
            layer.reset_parameters(generator)
        self.reset_output(generator)

    def reset_output(self, generator: torch.Generator | None = None) -> None:
        """Draw the output layer's parameters again."""
        reset_linear(self.output, generator)
        self._drawn = fingerprint(self.output.parameters())

    @property
    def has_untouched_output(self) -> bool:
        """Whether the output layer's parameters are still the ones drawn at random."""
        return self._drawn is not None and self._drawn == fingerprint(self.output.parameters())

    def forward(self, x: Tensor) -> Tensor:
        """(…, in_features) → (…, out_features), before any softmax."""
        check_input(self, x, self.output.weight.dtype)
        for layer, activate in zip(self.hidden, self._activate, strict=True):
            x = activate(layer(x))
        return self.output(x)

    def extra_repr(self) -> str:
        return f"activation={self.activation}"


class MemoryNetwork(nn.Module):
    """A memory layer with an activation, then a linear output layer: the paper's sequence model.

    **Arguments:**

    - `in_features`, `hidden`, `out_features`: the numbers of inputs, hidden units and outputs.
    - `function`: a function with `C`, its previous value.
    - `activation`: `"logistic"`, `"relu"`, `"tanh"` or a formula in x.
    - `through_time`: False treats the previous value as a constant; True is back-propagation through time.
    - `device`, `dtype`: as for every torch module.

    Shapes: (time, batch, in_features) → (time, batch, out_features).
    """

    def __init__(
        self,
        in_features: int,
        hidden: int,
        out_features: int,
        function: AnyFunction = "memory",
        activation: str = "logistic",
        through_time: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self._activate = torch_activation(activation)
        self.in_features = size("in_features", in_features)
        self.out_features = size("out_features", out_features)
        self.activation = activation
        width = size("hidden", hidden)
        self.memory = Memory(
            self.in_features, width, function, through_time=through_time, device=device, dtype=dtype
        )
        self.output = nn.Linear(width, self.out_features, device=device, dtype=dtype)
        reset_linear(self.output)

    def calibrate(self, x: Tensor, generator: torch.Generator | None = None) -> None:
        """Choose initial ranges for these inputs, (…, in_features), and draw all parameters again.

        Ranges that the function gives are kept: `"memory"` gives them all. See [`ftnn.nn.Memory`][].
        """
        self.memory.calibrate(x, generator)
        reset_linear(self.output, generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all parameters again."""
        self.memory.reset_parameters(generator)
        reset_linear(self.output, generator)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run over a sequence, (time, batch, in_features), from a state, (batch, hidden, in_features).

        Returns the outputs, (time, batch, out_features), before any softmax, and the new state.
        """
        sums, new = self.memory(x, state)
        return self.output(self._activate(sums)), new

    def extra_repr(self) -> str:
        return f"activation={self.activation}"


@torch.no_grad()
def reset_linear(layer: nn.Linear, generator: torch.Generator | None = None) -> None:
    """Draw a linear layer's weights as in the paper, uniform in ±0.1; set its bias to 0."""
    check_generator(generator)
    layer.weight.uniform_(-OUTPUT_RANGE, OUTPUT_RANGE, generator=generator)
    layer.bias.zero_()
