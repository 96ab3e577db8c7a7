"""The workloads, and running some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ftnn.bench import _peak
from ftnn.bench._bases import BASES
from ftnn.bench._layer import float64_rows, layer_rows, small_rows
from ftnn.bench._loop import basis_rows, loop_rows
from ftnn.bench._measure import FULL, QUICK, Effort
from ftnn.bench._memory import memory_rows
from ftnn.bench._peak import peak_rows
from ftnn.bench._rows import Row
from ftnn.bench._sequence import sequence_rows
from ftnn.bench._start import start_rows
from ftnn.bench._systems import ALL, EAGER, FLOAT32, KANS, LINEAR, MLP, RNN, Systems, present
from ftnn.bench._torch import FUNCTIONS
from ftnn.bench._training import adam_rows, growth_rows, large_rows, step_rows
from ftnn.errors import FtnnError


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    title: str
    unit: str
    yardstick: str | None
    """The system whose cost is 1."""
    rows: Callable[[str, Effort, Systems], Iterator[Row]]
    """Measures one function."""
    functions: tuple[str, ...] = FUNCTIONS
    """The default functions."""
    allowed: tuple[str, ...] = FUNCTIONS
    """The functions to choose from."""
    kans: bool = False
    """Whether networks of splines are measured, too."""


_STEP = "ms per step"
_ALL = (
    Workload(
        "A",
        "a training step of 784-128-10 on MNIST, batch 16, SGD, one thread",
        _STEP,
        MLP,
        step_rows,
        kans=True,
    ),
    Workload(
        "B", "a dense 784→128 layer, batch 256, forward and backward, all threads", "ms", LINEAR, layer_rows
    ),
    Workload(
        "C",
        "the memory function, 256 units, 400 pairs of digits of π, one thread",
        "ms per epoch",
        None,
        memory_rows,
        ("memory",),
        ("memory",),
    ),
    Workload(
        "D",
        "extra peak memory of a 1024→1024 layer, batch 1024, forward and backward",
        "MiB",
        None,
        peak_rows,
        ("F12", "F16"),
    ),
    Workload(
        "E",
        "nn.Transfer in a PyTorch loop with Adam(fused=True), 784-128-10 on MNIST, all threads",
        _STEP,
        LINEAR,
        loop_rows,
        kans=True,
    ),
    Workload(
        "F",
        "a training step of 784-128-10 on MNIST, Adam (torch: fused), one thread",
        _STEP,
        MLP,
        adam_rows,
    ),
    Workload(
        "G",
        "a training step of 784-1024-1024-10 on MNIST, batch 256, Adam, all threads",
        _STEP,
        MLP,
        large_rows,
        ("F03", "F07", "F12"),
    ),
    Workload(
        "bases",
        "784-64-10 of a basis in a PyTorch loop with Adam(fused=True) on MNIST, batch 64, one thread",
        _STEP,
        MLP,
        basis_rows,
        tuple(BASES),
        tuple(BASES),
        kans=True,
    ),
    Workload(
        "small",
        "small dense layers in both dtypes, forward (and backward), all threads",
        "ms",
        EAGER,
        small_rows,
        ("F03", "F09", "F12", "F16"),
    ),
    Workload("float64", "B's layer in float64, beside float32", "ms", FLOAT32, float64_rows),
    Workload(
        "time",
        "a memory layer 64→64, batch 32, 100 steps, forward and backward through time, all threads",
        "ms",
        RNN,
        sequence_rows,
        ("memory",),
        ("memory",),
    ),
    Workload(
        "start",
        "the first epoch in a new process, of one mini-batch, with all kernels to compile",
        "ms",
        None,
        start_rows,
        ("F07", "F12"),
    ),
    Workload(
        "growth",
        "workload A's step at other batch sizes, widths and densities",
        _STEP,
        MLP,
        growth_rows,
        ("F03", "F12"),
    ),
)
WORKLOADS = {workload.name: workload for workload in _ALL}
QUICK_WORKLOADS = ("A",)
QUICK_FUNCTIONS = ("F03", "F07", "F09", "F12", "F16")


@dataclass(frozen=True, slots=True)
class Choice:
    """What to run."""

    workloads: tuple[str, ...] = tuple(WORKLOADS)
    functions: tuple[str, ...] = ()
    """Empty for the defaults of each workload."""
    effort: Effort = FULL
    systems: Systems = ALL

    def functions_of(self, workload: Workload) -> tuple[str, ...]:
        """The chosen functions that the workload can measure; its defaults if there are none."""
        return tuple(name for name in self.functions if name in workload.allowed) or workload.functions

    @property
    def parts(self) -> int:
        """How many times `run` says what it is doing."""
        return sum(len(self.functions_of(WORKLOADS[name])) for name in self.workloads)


def choose(
    workloads: Sequence[str] = (), functions: Sequence[str] = (), *, quick: bool = False, compile: bool = True
) -> tuple[Choice, list[str]]:
    """A validated choice, and notes about what is left out."""
    _check("workload", workloads, tuple(WORKLOADS))
    _check("function", functions, (*FUNCTIONS, *BASES, "memory"))
    chosen = tuple(workloads) or (QUICK_WORKLOADS if quick else tuple(WORKLOADS))
    systems, notes = present(
        Systems(
            compile=compile and not quick,
            kans=tuple(KANS) if any(WORKLOADS[name].kans for name in chosen) and not quick else (),
        )
    )
    if quick:
        notes.append("torch.compile and KAN libraries are left out of a quick run.")
    if "D" in chosen and not _peak.is_available():
        notes.append("Workload D is left out: only Linux reports the peak memory of a process.")
    return Choice(
        chosen, tuple(functions) or (QUICK_FUNCTIONS if quick else ()), QUICK if quick else FULL, systems
    ), notes


def _check(kind: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise FtnnError(f"unknown {kind} {name!r}; expected one of {', '.join(known)}")


def run(choice: Choice, say: Callable[[str], None] = lambda _: None) -> Iterator[Row]:
    """Yield rows as they are measured. `say` receives the current activity."""
    for name in choice.workloads:
        workload = WORKLOADS[name]
        functions = choice.functions_of(workload)
        for n, function in enumerate(functions):
            say(f"{name}: {workload.title}: {function} ({n + 1} of {len(functions)})")
            yield from workload.rows(function, choice.effort, choice.systems)
