"""All that backends need to know about a function, looked up by its text: the operator's string argument."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from ftnn.formula import Function, Plan
from ftnn.formula._expr import INPUT, MEMORY, Expr


# Compared by identity: equal functions may list their parameters in different orders, and kernels, which are
# cached by program, take the matrices in the order of the text.
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

    @property
    def slopes(self) -> dict[str, Expr]:
        return self.function.slopes

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The trainable matrices, in the operators' order."""
        return self.function.parameters

    @cached_property
    def matrices(self) -> tuple[str, ...]:
        """All (in, out) matrices, parameters first."""
        return (*self.function.parameters, *self.function.constants)

    @cached_property
    def differentiable(self) -> tuple[str, ...]:
        """The variables that have gradients: `x`, perhaps `C`, then the parameters."""
        memory = (MEMORY,) if self.function.has_memory else ()
        return (INPUT, *memory, *self.parameters)


@lru_cache(maxsize=512)
def program_of(formula: str, constants: str = "") -> Program:
    """The program of a formula. `constants` are the names of its constants, separated by spaces."""
    program = Program(Function.composed(formula, {}, dict.fromkeys(constants.split(), (0.0,))))
    _ = program.slopes  # raises now, not at the first training step, if the function is too large to compile
    return program


def signature(function: Function) -> tuple[str, str]:
    """The arguments with which `program_of` recovers `function` (kernels ignore initial ranges)."""
    return function.formula, " ".join(function.constants)
