"""Searches for a minimum from one start each, by either second-order solver, and where they start."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ftnn.errors import FtnnError
from ftnn.nn._feed_forward import FeedForward
from ftnn.nn._inputs import SAMPLES
from ftnn.nn._network import reset_linear
from ftnn.training._checks import quoted
from ftnn.training._lbfgs import Descent, descend
from ftnn.training._least_squares import Bounds, Search, step
from ftnn.training._objective import NetworkObjective, NetworkSlopes
from ftnn.training._problem import Array, Problem
from ftnn.training._random import Purpose, stream, torch_generator
from ftnn.training._start import applied, free_kinds, has_untouched_outputs

DEFAULT_STARTS = 4
LARGEST = 1e300
"""Stands for infinity in arrays, which are finite."""
BoundsOf = Mapping[str, tuple[float, float]]
"""The bounds of parameters by name; infinite where there is none."""


class OneSearch(Protocol):
    """A search from one start."""

    net: nn.Module
    """The network in float64, with this start's constants; `write` sets its parameters."""

    @property
    def loss(self) -> float: ...
    @property
    def converged(self) -> bool: ...
    def advance(self) -> None:
        """One iteration."""
        ...

    def outputs(self, x: Tensor) -> Tensor: ...
    def write(self) -> None:
        """Set the network's parameters to the best found."""
        ...

    def arrays(self) -> dict[str, Array]:
        """A copy of the state, as finite arrays."""
        ...

    def restore(self, arrays: dict[str, Array]) -> None: ...


class LevenbergMarquardt:
    """`_least_squares` on a network."""

    def __init__(self, net: nn.Module, problem: Problem, bounds: BoundsOf):
        self.net, self.objective = net, NetworkObjective(net, problem)
        self._bounds = bounds_of(self.objective.form.trained, bounds) if bounds else None
        self._state = Search(self.objective.form.theta())

    @property
    def loss(self) -> float:
        return self._state.loss

    @property
    def converged(self) -> bool:
        return self._state.converged

    def advance(self) -> None:
        self._state = step(self.objective, self._state, self._bounds)

    def outputs(self, x: Tensor) -> Tensor:
        return self.objective.form.outputs(self._state.theta, x)

    @torch.no_grad()
    def write(self) -> None:
        values = self.objective.form.values(self._state.theta)
        for name, parameter in self.objective.form.trained.items():
            parameter.copy_(values[name])

    def arrays(self) -> dict[str, Array]:
        state = self._state
        loss = [] if math.isinf(state.loss) else [state.loss]
        arrays = {
            "theta": state.theta.numpy().copy(),
            "loss": np.array(loss, dtype=np.float64),
            "damping": np.array([state.damping, state.growth, min(state.promised, LARGEST)]),
            "converged": np.array([int(state.converged)]),
        }
        return arrays | ({} if state.scale is None else {"scale": state.scale.numpy().copy()})

    def restore(self, arrays: dict[str, Array]) -> None:
        damping, growth, promised = arrays["damping"].tolist()
        scale = arrays.get("scale")
        self._state = Search(
            torch.from_numpy(arrays["theta"].copy()),
            float(arrays["loss"][0]) if len(arrays["loss"]) else math.inf,
            damping,
            growth,
            None if scale is None else torch.from_numpy(scale.copy()),
            math.inf if promised >= LARGEST else promised,
            bool(arrays["converged"][0]),
        )


class Lbfgs:
    """`_lbfgs` on a network."""

    def __init__(self, net: nn.Module, problem: Problem):
        self.net, self._objective = net, NetworkSlopes(net, problem)
        self._state = Descent(self._objective.start)

    @property
    def loss(self) -> float:
        return self._state.loss

    @property
    def converged(self) -> bool:
        return self._state.converged

    def advance(self) -> None:
        self._state = descend(self._objective, self._state)

    @torch.no_grad()
    def outputs(self, x: Tensor) -> Tensor:
        return self._objective.load(self._state.theta)(x)

    def write(self) -> None:
        self.net.load_state_dict(self._objective.load(self._state.theta).state_dict())

    def arrays(self) -> dict[str, Array]:
        state, size = self._state, len(self._state.theta)
        has_loss = state.gradient is not None and math.isfinite(state.loss)
        return {
            "theta": state.theta.copy(),
            "loss": np.array([state.loss] if has_loss else [], dtype=np.float64),
            "gradient": np.array([] if state.gradient is None or not has_loss else state.gradient),
            "steps": np.reshape(state.steps, (-1, size)).copy(),
            "changes": np.reshape(state.changes, (-1, size)).copy(),
            "converged": np.array([int(state.converged)]),
        }

    def restore(self, arrays: dict[str, Array]) -> None:
        has_loss = len(arrays["loss"]) > 0
        self._state = Descent(
            arrays["theta"].copy(),
            float(arrays["loss"][0]) if has_loss else math.inf,
            arrays["gradient"].copy() if has_loss else None,
            tuple(arrays["steps"].copy()),
            tuple(arrays["changes"].copy()),
            bool(arrays["converged"][0]),
        )


# --- where searches start ---


def starting_networks(
    net: nn.Module, x: Array, seed: int, starts: int | None, *, calibrate: bool
) -> list[nn.Module]:
    """Copies of a network in float64 on the CPU, one for each start.

    The first has the network's parameters, unless they are as they were drawn and `calibrate` is set. All
    others are drawn anew. By default there are several starts only for a network that is as it was drawn.

    **Arguments:**

    - `x`: (samples, in): ranges are chosen for these inputs.
    """
    layers = [module for module in net.modules() if isinstance(module, FeedForward)]
    untouched = bool(layers) and all(layer.is_untouched for layer in layers) and has_untouched_outputs(net)
    count = starts if starts is not None else DEFAULT_STARTS if untouched else 1
    networks: list[nn.Module] = []
    for number in range(count):
        draws = number > 0 or (untouched and calibrate)
        # What is not drawn anew is only read until the search ends.
        is_ready = all(p.dtype == torch.float64 and p.device.type == "cpu" for p in net.parameters())
        start = net if is_ready and not draws else copy.deepcopy(net).cpu().double()
        if draws:
            own = seed if number == 0 else int(stream(seed, Purpose.starts, number).integers(2**31))
            some = x[np.linspace(0, len(x) - 1, min(len(x), SAMPLES)).astype(np.int64)]
            _draw(start, torch.from_numpy(some).double(), own, calibrate=calibrate)
        networks.append(start)
    return networks


@torch.no_grad()
def _draw(net: nn.Module, x: Tensor, seed: int, *, calibrate: bool) -> None:
    """Draw all layers, from ranges that suit their inputs; what is frozen keeps its value."""
    modules = list(applied(net))
    depth = sum(isinstance(module, FeedForward) for module in modules)
    for number, module in enumerate(modules):
        are_trained = {p.requires_grad for p in module.parameters()}
        before = copy.deepcopy(module.state_dict()) if len(are_trained) == 2 else None
        if isinstance(module, FeedForward) and True in are_trained:
            generator = torch_generator(seed, Purpose.hidden, number)
            if calibrate:
                module._calibrate(x, free_kinds(module), generator, depth)
            else:
                module.reset_parameters(generator)
        elif isinstance(module, nn.Linear) and True in are_trained and "bias" in module.state_dict():
            reset_linear(module, torch_generator(seed, Purpose.output, number))
        if before is not None:
            _put_back(module, before)
        x = module.eval()(x)


def _put_back(module: nn.Module, before: dict[str, Tensor]) -> None:
    """Set frozen parameters to what they were; all, if constants were drawn, to which those belong."""
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    now = module.state_dict()
    if all(torch.equal(now[name], before[name]) for name in dict(module.named_buffers()) if name in now):
        before = before | {name: now[name] for name in trained}
    module.load_state_dict(before)


# --- bounds ---


def bounds_of(parameters: Mapping[str, Tensor], bounds: BoundsOf) -> Bounds:
    """The bounds of each entry of the vector that these parameters make up, in order."""
    unused = set(bounds)
    parts: list[tuple[Tensor, Tensor]] = []
    for name, parameter in parameters.items():
        low, high = -math.inf, math.inf
        for key in (name.rpartition(".")[2], name):  # the full name has the last word
            if key in bounds:
                low, high = bounds[key]
                unused.discard(key)
        entries = torch.ones(parameter.numel(), dtype=torch.float64)
        parts.append((low * entries, high * entries))
    if unused:
        known = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in parameters))
        raise FtnnError(
            f"bounds has {quoted(sorted(unused)[0])}, which is not a trained parameter; expected some of "
            f"{known}, or a full name such as {next(iter(parameters), '')!r}"
        )
    lows, highs = zip(*parts, strict=True)
    return Bounds(torch.cat(lows), torch.cat(highs))
