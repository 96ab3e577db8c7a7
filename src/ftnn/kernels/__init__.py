"""From plans to numbers: the reference, matrix products, and generated CPU code."""

from ftnn.kernels._op import BACKENDS as BACKENDS
from ftnn.kernels._op import Backend as Backend
from ftnn.kernels._op import cpu_available as cpu_available
from ftnn.kernels._op import memory_step as memory_step
from ftnn.kernels._op import transfer as transfer
from ftnn.kernels._operands import check_layout as check_layout
from ftnn.kernels._partial import partial_transfer as partial_transfer
from ftnn.kernels._partial import partial_transfer_plain as partial_transfer_plain
from ftnn.kernels._program import program as program
from ftnn.kernels._program import signature as signature
from ftnn.kernels._traced import traced as traced
