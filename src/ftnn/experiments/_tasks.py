"""What there is to run: stages of training as data, each with a key that says what it is.

A cell of the paper's tables is a chain of stages: layer-wise training of hidden layer 1, 2, …, and then
fine-tuning. Cells that differ in depth only have their first stages in common, and so these have one key.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal

from ftnn.errors import DataError, FormulaError, FtnnError
from ftnn.experiments._conic_problems import PROBLEMS
from ftnn.formula import Function, as_function, catalogue
from ftnn.training import Settings
from ftnn.training._sizes import check_sizes

if TYPE_CHECKING:
    from ftnn.nn import Activation

Kind = Literal["lwt", "ft", "pi", "conic"]

RESULTS: Mapping[Kind, int] = {"lwt": 2, "ft": 3, "pi": 1, "conic": 1}
"""The version of each kind's results: raised when it gives other numbers than before. Part of every key."""

ACTIVATIONS: tuple[Activation, ...] = ("logistic", "relu", "tanh")
"""The paper's: all that networks have."""


@dataclass(frozen=True)
class Cell:
    """A network of the paper's first experiment and how it is trained."""

    function: str
    """A name of the catalogue, or a formula: see `function_of`."""
    activation: Activation
    hidden_layers: int
    gamma: float
    seed: int = 0
    data: str = "mnist"
    """`mnist`, or `mnist:N`: its first N training images and N/5 test images."""
    epochs: tuple[int, int] = (15, 15)
    width: int = 128
    batch_size: int = 16

    def __post_init__(self) -> None:
        given: Any = self.epochs
        if not isinstance(given, tuple) or len(given) != 2:
            raise FtnnError(f"epochs is {given!r}; expected two whole numbers")
        _are("text", function=self.function, activation=self.activation, data=self.data)
        _are("number", gamma=self.gamma)
        _are("whole number", hidden_layers=self.hidden_layers, seed=self.seed, width=self.width)
        _are("whole number", batch_size=self.batch_size, lwt_epochs=given[0], ft_epochs=given[1])
        function_of(self.function)
        self.settings()
        if self.activation not in ACTIVATIONS:
            raise FtnnError(f"activation {self.activation!r} is unknown; expected {_list(ACTIVATIONS)}")
        check_sizes(self.hidden_layers, self.width)
        images(self.data)

    def settings(self) -> Settings:
        return Settings(self.gamma, self.epochs, self.batch_size, self.seed)

    def task(self) -> Task:
        """The last stage, which ends the cell."""
        return Task("ft", self)

    @property
    def setting(self) -> str:
        """What differs from the paper's experiment, in words; empty where nothing does."""
        usual = Cell("F01", "relu", 1, 0)
        parts = [
            (self.data != usual.data, self.data),
            (self.epochs != usual.epochs, f"{self.epochs[0]} + {self.epochs[1]} epochs"),
            (self.width != usual.width, f"{self.width} units"),
            (self.batch_size != usual.batch_size, f"batches of {self.batch_size}"),
        ]
        return ", ".join(text for differs, text in parts if differs)

    @property
    def is_papers(self) -> bool:
        """Whether all but the function, depth, activation, γ and seed is as in the paper's experiment."""
        return not self.setting

    def __str__(self) -> str:
        seed = f" seed {self.seed}" if self.seed else ""
        return f"{self.function}-{self.activation} γ={self.gamma:g}{seed}"


@dataclass(frozen=True)
class PiCell:
    """A curve of the paper's second experiment: a memory layer that learns digits of π by heart."""

    hidden: int
    pairs: int
    seed: int = 0
    gamma: float = -4
    epochs: int = 5000

    def __post_init__(self) -> None:
        _are("number", gamma=self.gamma)
        _are("whole number", hidden=self.hidden, pairs=self.pairs, seed=self.seed, epochs=self.epochs)
        if min(self.hidden, self.pairs, self.epochs) < 1 or self.seed < 0:
            raise FtnnError(
                f"{self.hidden} hidden units, {self.pairs} pairs, {self.epochs} epochs, seed {self.seed}: "
                "the first three must be 1 or more, the seed 0 or more"
            )

    def task(self) -> Task:
        return Task("pi", self)

    @property
    def is_papers(self) -> bool:
        """Whether all but the sizes and the seed is as in the paper's experiment."""
        return self == PiCell(self.hidden, self.pairs, self.seed)

    def __str__(self) -> str:
        return f"{self.hidden}H-{self.pairs}D" + (f" seed {self.seed}" if self.seed else "")


@dataclass(frozen=True)
class ConicCell:
    """One of the paper's conic hypersurfaces: see `PROBLEMS`."""

    problem: str
    seed: int = 0

    def __post_init__(self) -> None:
        _are("text", problem=self.problem)
        _are("whole number", seed=self.seed)
        if self.problem not in PROBLEMS:
            raise FtnnError(f"unknown conic problem {self.problem!r}; expected {_list(PROBLEMS)}")
        if self.seed < 0:
            raise FtnnError(f"seed {self.seed}: it must be 0 or more")

    def task(self) -> Task:
        return Task("conic", self)

    @property
    def is_papers(self) -> bool:
        """Always: there is nothing to set but the seed."""
        return True

    def __str__(self) -> str:
        return self.problem + (f" seed {self.seed}" if self.seed else "")


AnyCell = Cell | PiCell | ConicCell


@dataclass(frozen=True)
class Task:
    """One stage."""

    kind: Kind
    cell: AnyCell
    """For layer-wise training, the cell that ends with it: `hidden_layers` says which layer learns."""

    @property
    def spec(self) -> dict[str, Any]:
        """All that decides the result, as plain data."""
        given = asdict(self.cell)
        if isinstance(self.cell, Cell):
            made = function_of(self.cell.function)
            given["function"] = {"formula": made.formula, "init": made.init, "constants": made.choices}
            # Layer-wise training does not know what comes after it.
            given["epochs"] = list(self.cell.epochs)[: 1 if self.kind == "lwt" else 2]
            given["gamma"] = float(self.cell.gamma)
        return {"kind": self.kind, "results": RESULTS[self.kind], **given}

    @cached_property
    def key(self) -> str:
        text = json.dumps(self.spec, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def before(self) -> Task | None:
        """The stage that must be done first."""
        if self.kind == "ft":
            return Task("lwt", self.cell)
        if isinstance(self.cell, Cell) and self.cell.hidden_layers > 1:
            return Task("lwt", replace(self.cell, hidden_layers=self.cell.hidden_layers - 1))
        return None

    @property
    def chain(self) -> tuple[Task, ...]:
        """All stages that lead to this one, the first layer's first; this one is not among them."""
        found: list[Task] = []
        before = self.before
        while before is not None:
            found.append(before)
            before = before.before
        return tuple(reversed(found))

    @property
    def epochs(self) -> int:
        """How many, at most."""
        if isinstance(self.cell, PiCell):
            return self.cell.epochs
        if isinstance(self.cell, ConicCell):
            return sum(PROBLEMS[self.cell.problem].epochs)
        return self.cell.epochs[self.kind == "ft"]

    @property
    def title(self) -> str:
        """Which part of its cell this is."""
        if isinstance(self.cell, PiCell):
            return "π"
        if isinstance(self.cell, ConicCell):
            return "conic"
        depth = self.cell.hidden_layers
        return f"LWT {depth}" if self.kind == "lwt" else f"FT of {depth}"


def task_of(text: Any) -> Task:
    """The task that `as_text` wrote. Raises `DataError` for all else."""
    shown = f"task is {text!r:.100}"
    try:
        given: Any = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise DataError(f"{shown}; expected JSON") from None
    kind: Any = given.pop("kind", None) if isinstance(given, dict) else None
    made = _CELLS.get(str(kind))
    if made is None:
        raise DataError(f"{shown}; expected an object whose kind is {_list(_CELLS)}")
    known = {field.name: field.default is MISSING for field in fields(made)}
    if not {name for name, needed in known.items() if needed} <= given.keys() <= known.keys():
        raise DataError(f"{shown}; expected the fields {_list(known)}")
    if made is Cell and isinstance(given.get("epochs"), list):
        given["epochs"] = tuple(given["epochs"])
    try:
        return Task(kind, made(**given))
    except FtnnError as error:
        raise DataError(f"task: {reason_of(error)}") from error


_CELLS: Mapping[str, type[AnyCell]] = {"lwt": Cell, "ft": Cell, "pi": PiCell, "conic": ConicCell}


def reason_of(error: FtnnError) -> str:
    """What an error says, on one line: a formula's place is of no use where the formula is not shown."""
    return f"{error.text!r}: {error.message}" if isinstance(error, FormulaError) else str(error)


def as_text(task: Task) -> str:
    """A task as JSON; `task_of` reads it."""
    return json.dumps({"kind": task.kind, **asdict(task.cell)})


# --- functions as texts ---

_WHERE = re.compile(r"(\w+)\s+in\s+\[\s*([^,\]]+),\s*([^,\]]+)\]$")


@cache
def function_of(text: str) -> Function:
    """A function from one text: `F12`, a formula, or `p*tan(q*x + r) where q in [-9, 9] and r in [0, 1]`."""
    formula, where, ranges = text.partition(" where ")
    if not where:
        return as_function(text)
    init: dict[str, tuple[float, float]] = {}
    for part in ranges.split(" and "):
        found = _WHERE.match(part.strip())
        try:
            if found is None:
                raise ValueError
            init[found[1]] = (float(found[2]), float(found[3]))
        except ValueError:
            raise FtnnError(
                f"{part!r} in {text!r} is no range; write: FORMULA where q in [-10, 10] and r in [0, 1]"
            ) from None
    if formula in catalogue:
        known = catalogue[formula]
        return Function(known.formula, init={**known.init, **init}, constants=known.choices)
    return Function(formula, init=init)


def named(text: str) -> str:
    """What such a text has before its ranges: `F12` of `F12 where q in [-9, 9]`."""
    return text.partition(" where ")[0]


# --- data by name ---


def images(data: str) -> int | None:
    """How many training images `mnist:N` names; None: all."""
    name, colon, number = data.partition(":")
    is_count = number.isascii() and number.isdecimal() and len(number) < 20 and 5 <= int(number) <= 60_000
    if name != "mnist" or (colon and not is_count):
        raise FtnnError(f"data {data!r} is unknown; expected mnist, or mnist:N with N from 5 to 60000")
    return int(number) if colon else None


# --- many tasks ---


def with_chains(tasks: Iterable[Task]) -> Mapping[str, Task]:
    """These tasks and all that lead to them, each once, by key, a stage after those before it."""
    found: dict[str, Task] = {}
    for task in tasks:
        for part in (*task.chain, task):
            found.setdefault(part.key, part)
    return found


def _are(kind: str, **values: Any) -> None:
    """Refuse values of another type: cells are made from files, too."""
    for name, value in values.items():
        is_right = {
            "text": isinstance(value, str),
            "whole number": type(value) is int,
            "number": type(value) in (int, float) and math.isfinite(value),
        }
        if not is_right[kind]:
            raise FtnnError(f"{name} is {value!r:.60}; expected a {kind}")


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
