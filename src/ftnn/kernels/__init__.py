"""Compute what plans describe. Private as a whole: `ftnn.nn` is the public interface.

program, contraction   a function as kernels see it; sums over axes whose derivatives are such sums again
operator, memory, contract   the torch operators and their autograd: the only entry points
backends               which code computes a layer
each                   the value of every connection, for Jacobians
eager/                 plain torch: the reference, and matrix products
codegen/               expression → vector instructions
loops/                 LLVM IR for each loop scheme
cpu/                   compiling, caching, tiling, threads, launching
triton/                GPU kernels
"""

from ftnn.kernels.backends import BACKENDS as BACKENDS
from ftnn.kernels.backends import Backend as Backend
from ftnn.kernels.contract import is_traced as is_traced
from ftnn.kernels.each import EachConnection as EachConnection
from ftnn.kernels.eager.evaluation import evaluate as evaluate
from ftnn.kernels.generated import cpu_available as cpu_available
from ftnn.kernels.memory import memory as memory
from ftnn.kernels.memory import memory_step as memory_step
from ftnn.kernels.operands import Lists as Lists
from ftnn.kernels.operands import check_layout as check_layout
from ftnn.kernels.operator import connection_values as connection_values
from ftnn.kernels.operator import listed_values as listed_values
from ftnn.kernels.operator import traced_transfer as traced_transfer
from ftnn.kernels.operator import transfer as transfer
from ftnn.kernels.program import program_of as program_of
from ftnn.kernels.program import signature as signature
