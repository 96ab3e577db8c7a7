"""The texts of Triton kernels: loops with named holes that `source.py` fills."""

HEAD = '''\
"""{title}"""

import triton
import triton.language as tl
'''

# Powers are computed in float64: in float32, b*log(a) has too few digits for a large power.
POW = '''

@triton.jit
def _pow(a, b):
    """a**b, with C's special cases but for the sign of zero."""
    base, exponent = a.to(tl.float64), b.to(tl.float64)
    size = tl.where(tl.abs(base) == 1.0, 1.0, tl.exp(exponent * tl.log(tl.abs(base))))
    odd = tl.floor(exponent * 0.5) * 2.0 != exponent
    size = tl.where((base < 0.0) & odd & (tl.floor(exponent) == exponent), -size, size)
    finite = (base < 0.0) & (base > -float("inf"))
    size = tl.where(finite & (tl.floor(exponent) != exponent), float("nan"), size)
    return tl.where((exponent == 0.0) | (base == 1.0), 1.0, size).to({dtype})
'''

FORWARD = """

@triton.jit
def kernel(x_at, {matrices_at}, out_at, batch, ins, outs, BATCH: tl.constexpr, OUTS: tl.constexpr):
    # x is (in, batch), a matrix (in, out), the result (batch, out).
    blocks = tl.cdiv(outs, OUTS)
    b = (tl.program_id(0) // blocks).to(tl.int64) * BATCH + tl.arange(0, BATCH)[:, None]
    o = (tl.program_id(0) % blocks) * OUTS + tl.arange(0, OUTS)[None, :]
    total = tl.zeros((BATCH, OUTS), tl.{dtype})
{before}
    for _ in range(ins):
        x = tl.load(x_at + b, mask=b < batch, other=0.0)
{loads}
{inside}
        total += {result}
        x_at += batch
{steps}
    tl.store(out_at + b * outs + o, total, mask=(b < batch) & (o < outs))
"""

BY_INPUT = """

@triton.jit
def kernel(g_at, x_at, {matrices_at}, out_at, batch, ins, outs, BATCH: tl.constexpr, OUTS: tl.constexpr):
    # g is (batch, out), x (batch, in), a matrix (in, out), the result (batch, in).
    i = (tl.program_id(0) % ins).to(tl.int64)
    rows = (tl.program_id(0) // ins).to(tl.int64) * BATCH + tl.arange(0, BATCH)
    b = rows[:, None]
    x = tl.load(x_at + b * ins + i, mask=b < batch, other=0.0)
    total = tl.zeros((BATCH, OUTS), tl.{dtype})
{before}
    for start in range(0, outs, OUTS):
        o = start + tl.arange(0, OUTS)[None, :]
        here = (b < batch) & (o < outs)
        g = tl.load(g_at + b * outs + o, mask=here, other=0.0)
{loads}
{inside}
        # Beyond the edge a function may have a pole, and 0 times infinity is not 0.
        total += tl.where(here, {result}, 0.0)
    tl.store(out_at + rows * ins + i, tl.sum(total, 1), mask=rows < batch)
"""

BY_MATRICES = """

@triton.jit
def kernel(g_at, x_at, {matrices_at}, {outs_at}, batch, ins, outs, INS: tl.constexpr, OUTS: tl.constexpr):
    # g is (batch, out), x (batch, in), a matrix (in, out), and so is each result.
    blocks = tl.cdiv(outs, OUTS)
    i = (tl.program_id(0) // blocks).to(tl.int64) * INS + tl.arange(0, INS)[:, None]
    o = (tl.program_id(0) % blocks) * OUTS + tl.arange(0, OUTS)[None, :]
    here = (i < ins) & (o < outs)
{loads}
{totals}
{before}
    for _ in range(batch):
        g = tl.load(g_at + o, mask=o < outs, other=0.0)
        x = tl.load(x_at + i, mask=i < ins, other=0.0)
{inside}
{sums}
        g_at += outs
        x_at += ins
{stores}
"""
