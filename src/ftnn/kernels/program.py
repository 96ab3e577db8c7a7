"""What every backend needs of a function, looked up by its text: the operator's string argument."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from ftnn.formula import Function, Plan
from ftnn.formula._expr import INPUT, MEMORY, Expr


# Compared by identity: equal functions may be written with their parameters in different orders, and kernels,
# which are remembered by program, take the matrices in the order of the text.
@dataclass(frozen=True, eq=False)
class Program:
    """A function as kernels see it: an expression over `x`, perhaps `C`, then matrices in a fixed order."""

    function: Function

    @property
    def expr(self) -> Expr:
        return self.function.expr

    @property
    def plan(self) -> Plan:
        return self.function.plan

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The trainable matrices, in the order in which an operator takes them."""
        return self.function.parameters

    @cached_property
    def matrices(self) -> tuple[str, ...]:
        """All (in, out) matrices, parameters first."""
        return (*self.function.parameters, *self.function.constants)

    @cached_property
    def differentiable(self) -> tuple[str, ...]:
        """What gradients are taken by: `x`, perhaps `C`, then the parameters."""
        memory = (MEMORY,) if self.function.has_memory else ()
        return (INPUT, *memory, *self.parameters)

    @cached_property
    def slopes(self) -> dict[str, Expr]:
        return self.function.slopes


@lru_cache(maxsize=512)
def program_of(formula: str, constants: str = "") -> Program:
    """The program of a formula.

    **Arguments:**

    - `formula`: the text.
    - `constants`: the names that are constants, separated by spaces.
    """
    program = Program(Function.composed(formula, {}, dict.fromkeys(constants.split(), (0.0,))))
    _ = program.slopes  # refuses a function too large to compile, and not only when it is first trained
    return program


def signature(function: Function) -> tuple[str, str]:
    """The arguments that make `program` find `function` again (initial ranges do not matter to kernels)."""
    return function.formula, " ".join(function.constants)
