"""Threads for kernels: torch's own, as many as torch may use.

A task is a list of kernel calls, run in order. All tasks are passed to compiled code at once, which draws
them from a counter, so there is a single call from Python and threads never wait for its lock.

torch's threads belong to GNU's OpenMP, and spin for a while after each operation. Additional threads would
find no free core, so if that library is loaded, its threads run our tasks too. Otherwise, and in forked
processes, where OpenMP would wait for threads that do not exist, a separate pool runs them.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from llvmlite import ir

from ftnn._process import FIRST
from ftnn.kernels.codegen.target import Args
from ftnn.kernels.cpu.compiler import Code, compiled

Call = tuple[Code, Args]
"""A kernel and its arguments."""


@lru_cache(maxsize=4)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    # A forked process has none of its parent's threads, hence the process in the key.
    return ThreadPoolExecutor(threads, thread_name_prefix="ftnn")


def run(tasks: Sequence[Sequence[Call]], *, parallel: bool = True) -> None:
    """Run independent tasks; `torch.set_num_threads` sets the number of threads."""
    table = array("q", bytes(8 * words(tasks)))
    place = table.buffer_info()[0]
    table[:] = array("q", flattened(tasks, place))  # in place: the length is the same
    start(place, min(torch.get_num_threads(), len(tasks)) if parallel else 1)
    del table  # in use until now


def start(table: int, threads: int) -> None:
    """Run the tasks of the table at this address."""
    team = _team()
    if threads <= 1:
        team(table)
    elif (together := _torch_threads()) is not None and not _may_be_forked():
        together(team, table, threads, 0)
    else:
        # This thread does its share too, so there is one fewer to wake.
        waiting = [_pool(os.getpid(), threads - 1).submit(team, table) for _ in range(threads - 1)]
        team(table)
        for future in waiting:
            future.result()


def _may_be_forked() -> bool:
    """Whether torch's threads may be in a parent process, even if ftnn was imported after the fork."""
    return os.getpid() != FIRST or multiprocessing.parent_process() is not None


def words(tasks: Sequence[Sequence[Call]]) -> int:
    """The length of the table of these tasks, in 64-bit numbers."""
    return 3 + len(tasks) + sum(2 + len(args) for task in tasks for _, args in task)


def flattened(tasks: Sequence[Sequence[Call]], place: int) -> list[int]:
    """The team's input, stored at `place`: a counter, the number of tasks, the end of each task's calls, and
    the calls.

    A call is a pair (kernel, address of its arguments). The arguments themselves come last.
    """
    calls = [call for task in tasks for call in task]
    numbers, pairs, args = [0, len(tasks), 0, *accumulate(map(len, tasks))], list[int](), list[int]()
    first = place + 8 * (len(numbers) + 2 * len(calls))
    for code, call_args in calls:
        pairs += (code.address, first + 8 * len(args))
        args += call_args
    return numbers + pairs + args


@cache
def _team() -> Any:
    """The compiled function that takes tasks and runs their calls until none is left."""
    return compiled(_team_text()).function


def _team_text() -> str:
    module = ir.Module("team")
    i64, pointer = ir.IntType(64), ir.PointerType()
    kernel = ir.FunctionType(ir.VoidType(), [pointer])
    function = ir.Function(module, kernel, "kernel")
    entry, take, task, each, end = (
        function.append_basic_block(n) for n in ("entry", "take", "task", "each", "end")
    )
    b: Any = ir.IRBuilder(entry)

    def at(place: ir.Value) -> ir.Value:
        return b.gep(function.args[0], [place], source_etype=i64)

    def number(value: int) -> ir.Value:
        return ir.Constant(i64, value)

    count = b.load(at(number(1)), typ=i64)
    pairs = b.add(count, number(3))
    b.branch(take)
    b.position_at_end(take)
    index = b.atomic_rmw("add", at(number(0)), number(1), "acq_rel")
    b.cbranch(b.icmp_signed("<", index, count), task, end)
    b.position_at_end(task)
    first = b.load(at(b.add(index, number(2))), typ=i64)
    last = b.load(at(b.add(index, number(3))), typ=i64)
    b.branch(each)
    b.position_at_end(each)
    call = b.phi(i64)
    call.add_incoming(first, task)
    place = b.add(pairs, b.mul(call, number(2)))
    address = b.load(at(place), typ=pointer)
    b.call(Callee(address, kernel), [b.load(at(b.add(place, number(1))), typ=pointer)])
    following = b.add(call, number(1))
    call.add_incoming(following, each)
    b.cbranch(b.icmp_signed("<", following, last), each, take)
    b.position_at_end(end)
    b.ret_void()
    return str(module)


class Callee:
    """A pointer to call: llvmlite needs the type of the function it points to."""

    def __init__(self, address: Any, kind: ir.FunctionType):
        self._address = address
        self.function_type = kind
        self.type = ir.PointerType()
        self.calling_convention = ""

    def get_reference(self) -> str:
        return self._address.get_reference()


@cache
def _torch_threads() -> Any:
    """`GOMP_parallel` of the OpenMP library that torch has loaded; None if it is another library."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*")):
        try:
            library = ctypes.CDLL(str(path))
            start = library.GOMP_parallel
        except (OSError, AttributeError):
            continue
        start.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        start.restype = None
        return start
    return None
