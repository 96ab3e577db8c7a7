"""Loop schemes as LLVM IR: loops over inputs, vectors of outputs and samples around a function.

Every kernel is `void kernel(int64 *args)`; `args` holds sizes and addresses, which the kernel's `Args`
names. Samples come in tiles. For each input j a tile is a list: the samples whose x_j is not zero, then the
others. F(0) does not depend on the sample, so the others cost one evaluation together.

Layouts: matrices (in, out) with a row length of their own; lists (in, stride), where the stride is a number
of whole vectors; `u`, `g` (vectors, stride, lanes). What lies between two rows is neither read nor written.
"""
