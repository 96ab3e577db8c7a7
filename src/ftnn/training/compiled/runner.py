"""A training step as a list of kernel calls, and the compiled code that runs it.

Each thread has its own list of entries (kernel, arguments, condition). A call is made if there is no
condition, or if the number at the condition's address is not zero. An entry without a kernel ends the run if
its condition holds. With several threads, a barrier is a kernel like any other.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from llvmlite import binding, ir

from ftnn.kernels.codegen.target import Args
from ftnn.kernels.cpu.compiler import Code, compiled
from ftnn.kernels.cpu.threads import Callee
from ftnn.training.compiled.buffers import Array, address

_I32, _I64, _POINTER = ir.IntType(32), ir.IntType(64), ir.PointerType()
_KERNEL = ir.FunctionType(ir.VoidType(), [_POINTER])
_FLUSH = 0x8000
_SPINS = 20_000
"""How often a waiting thread checks the barrier before it yields its core."""


class Calls:
    """A list of kernel calls per thread, built once and run any number of times."""

    def __init__(self, threads: int = 1):
        self.threads = threads
        self._entries: list[list[tuple[int, int, int]]] = [[] for _ in range(threads)]
        self._alive: list[Any] = []
        self._barrier = np.zeros(16, np.int64)  # arrivals and, on its own cache line, the round
        self._is_serial = False

    def call(self, code: Code, args: Args, condition: int = 0) -> None:
        """Add a call by the first thread."""
        self._add(0, code, args, condition)
        self._is_serial = True

    def split(self, code: Code, parts: Sequence[Args], condition: int = 0) -> None:
        """Add independent calls, divided among the threads. They start once all earlier calls are done."""
        self.synchronise()
        for number, args in enumerate(parts):
            self._add(number * self.threads // len(parts), code, args, condition)
        self._wait()

    def leave_if(self, condition: int) -> None:
        """End the run here if the number at this address is not zero."""
        self.synchronise()
        for entries in self._entries:
            entries.append((0, 0, condition))

    def synchronise(self) -> None:
        """Make all threads wait for calls that only the first one made."""
        if self._is_serial:
            self._wait()

    def numbers(self, values: Sequence[int]) -> int:
        """The address of some numbers, which live as long as this object."""
        block = np.array(values, np.int64)
        self._alive.append(block)
        return address(block) if len(block) else 0

    def table(self, arrays: Sequence[Array], row: int = 0) -> int:
        """The address of a table of the arrays' addresses, each from `row` on."""
        return self.numbers([address(array, row) for array in arrays])

    def _add(self, thread: int, code: Code, args: Args, condition: int) -> None:
        self._alive.append(code)
        self._entries[thread].append((code.address, self.numbers(args), condition))

    def _wait(self) -> None:
        self._is_serial = False
        if self.threads == 1:
            return
        code = _barrier(self.threads)
        self._alive.append(code)
        for entries in self._entries:
            entries.append((code.address, self._barrier.ctypes.data, 0))

    def run(self, steps: int) -> None:
        """Run the list `steps` times, with the interpreter's lock released."""
        self.synchronise()
        runner = _runner()
        tables = [
            np.array([steps, len(entries), *chain.from_iterable(entries)], np.int64)
            for entries in self._entries
        ]

        def run(table: Array) -> None:
            runner(table.ctypes.data)

        # New threads for each run: a pool may provide fewer than a barrier needs, and two runs that share one
        # could each hold threads that the other waits for.
        others = [threading.Thread(target=run, args=(table,)) for table in tables[1:]]
        for other in others:
            other.start()
        try:
            run(tables[0])
        finally:
            for other in others:
                other.join()


@cache
def _runner() -> Any:
    return compiled(_runner_text()).function


def _runner_text() -> str:
    """for _ in range(steps): for kernel, args, condition in entries: …"""
    module = ir.Module("runner")
    function = ir.Function(module, _KERNEL, "kernel")
    names = ("entry", "step", "each", "chosen", "check", "run", "next", "end")
    entry, step, each, chosen, check, run, following, end = map(function.append_basic_block, names)
    b: Any = ir.IRBuilder(entry)

    def at(index: Any) -> Any:
        place = ir.Constant(_I64, index) if isinstance(index, int) else index
        return b.gep(function.args[0], [place], source_etype=_I64)

    zero, one = ir.Constant(_I64, 0), ir.Constant(_I64, 1)
    steps, count = b.load(at(0), typ=_I64), b.load(at(1), typ=_I64)
    restore = _flush_subnormal_results(b)
    b.cbranch(b.icmp_signed("<", zero, steps), step, end)
    b.position_at_end(step)
    number = b.phi(_I64)
    number.add_incoming(zero, entry)
    b.branch(each)
    b.position_at_end(each)
    index = b.phi(_I64)
    index.add_incoming(zero, step)
    place = b.add(b.mul(index, ir.Constant(_I64, 3)), ir.Constant(_I64, 2))
    condition = b.load(at(b.add(place, ir.Constant(_I64, 2))), typ=_POINTER)
    kernel = b.load(at(place), typ=_I64)
    b.cbranch(b.icmp_unsigned("==", b.ptrtoint(condition, _I64), zero), run, chosen)
    b.position_at_end(chosen)
    # Atomic, so that the compiler reads it again each time.
    holds = b.icmp_signed("!=", b.load_atomic(condition, "acquire", 8, typ=_I64), zero)
    b.cbranch(holds, check, following)
    b.position_at_end(check)
    b.cbranch(b.icmp_signed("==", kernel, zero), end, run)
    b.position_at_end(run)
    address = b.load(at(place), typ=_POINTER)
    b.call(Callee(address, _KERNEL), [b.load(at(b.add(place, one)), typ=_POINTER)])
    b.branch(following)
    b.position_at_end(following)
    after = b.add(index, one)
    index.add_incoming(after, following)
    more = function.append_basic_block("more")
    b.cbranch(b.icmp_signed("<", after, count), each, more)
    b.position_at_end(more)
    done = b.add(number, one)
    number.add_incoming(done, more)
    b.cbranch(b.icmp_signed("<", done, steps), step, end)
    b.position_at_end(end)
    restore()
    b.ret_void()
    return str(module)


def _flush_subnormal_results(b: Any) -> Callable[[], None]:
    """Make this thread round results too small for a normal number to 0. Returns what emits the opposite.

    Some functions drive parameters towards 0, such as `p**2*x`, and an optimizer's averages fade if there is
    no gradient. CPUs take up to a hundred times as long for such numbers.
    """
    if not binding.get_process_triple().startswith("x86_64"):
        return lambda: None
    load, save = (
        ir.Function(b.module, _KERNEL, f"llvm.x86.sse.{name}mxcsr") for name in ("ld", "st")
    )  # the register that controls rounding
    before, during = b.alloca(_I32), b.alloca(_I32)
    b.call(save, [before])
    b.store(b.or_(b.load(before, typ=_I32), ir.Constant(_I32, _FLUSH)), during)
    b.call(load, [during])

    def restore() -> None:
        b.call(load, [before])

    return restore


@cache
def _barrier(threads: int) -> Code:
    return compiled(_barrier_text(threads))


def _barrier_text(threads: int) -> str:
    """Wait until all threads are here: the last to arrive starts the next round."""
    module = ir.Module("barrier")
    function = ir.Function(module, _KERNEL, "kernel")
    name = "SwitchToThread" if sys.platform == "win32" else "sched_yield"
    give_way = ir.Function(module, ir.FunctionType(ir.IntType(32), []), name)
    names = ("entry", "last", "spin", "look", "rest", "end")
    entry, last, spin, look, rest, end = map(function.append_basic_block, names)
    b: Any = ir.IRBuilder(entry)
    zero, one = ir.Constant(_I64, 0), ir.Constant(_I64, 1)
    arrivals = function.args[0]
    turn = b.gep(arrivals, [ir.Constant(_I64, 8)], source_etype=_I64)
    current = b.load_atomic(turn, "acquire", 8, typ=_I64)
    arrived = b.atomic_rmw("add", arrivals, one, "acq_rel")
    b.cbranch(b.icmp_signed("==", arrived, ir.Constant(_I64, threads - 1)), last, spin)
    b.position_at_end(last)
    b.atomic_rmw("xchg", arrivals, zero, "release")
    b.atomic_rmw("xchg", turn, b.add(current, one), "release")
    b.branch(end)
    b.position_at_end(spin)
    spins = b.phi(_I64)
    spins.add_incoming(zero, entry)
    has_changed = b.icmp_signed("!=", b.load_atomic(turn, "acquire", 8, typ=_I64), current)
    b.cbranch(has_changed, end, look)
    b.position_at_end(look)
    more = b.add(spins, one)
    spins.add_incoming(more, look)
    b.cbranch(b.icmp_signed("<", more, ir.Constant(_I64, _SPINS)), spin, rest)
    b.position_at_end(rest)
    b.call(give_way, [])
    spins.add_incoming(zero, rest)
    b.branch(spin)
    b.position_at_end(end)
    b.ret_void()
    return str(module)
