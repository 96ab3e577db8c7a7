"""Loop schemes as LLVM IR: loops over inputs, vectors of outputs and samples around a function.

Every kernel is `void kernel(int64 *args)`; `args` holds the sizes and addresses that the kernel's `Args`
names. Samples come in tiles. In kernels that skip zeros, a tile has a list for each input j: the samples with
nonzero x_j, then the others. F(0) does not depend on the sample, so the others share one evaluation.

Layouts: matrices (in, out), with an explicit row length; lists (in, stride), where the stride is a multiple
of the vector length; `u`, `g` (vectors, stride, lanes). Memory between rows is neither read nor written.
"""
