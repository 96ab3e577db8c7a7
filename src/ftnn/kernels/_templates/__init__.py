"""The kernels as texts with holes: loops over inputs, vectors of outputs and samples around a function.

Every kernel is `void kernel(int64 *args)`; `args` holds sizes and addresses, in the order of the kernel's
`Args`. Samples come in tiles. For each input j a tile is a list: the samples whose x_j is not zero, then the
others. F(0) does not depend on the sample, so the others cost one evaluation together.

Layouts: matrices (in, out) with a row length of their own; lists (in, stride), where the stride is a number
of whole vectors; `u`, `g` (vectors, stride, lanes). What lies between two rows is neither read nor written.
"""

from ftnn.kernels._templates._arrange import CollectArgs as CollectArgs
from ftnn.kernels._templates._arrange import MapArgs as MapArgs
from ftnn.kernels._templates._arrange import PackArgs as PackArgs
from ftnn.kernels._templates._arrange import TotalArgs as TotalArgs
from ftnn.kernels._templates._arrange import TurnArgs as TurnArgs
from ftnn.kernels._templates._arrange import collect as collect
from ftnn.kernels._templates._arrange import elementwise as elementwise
from ftnn.kernels._templates._arrange import pack as pack
from ftnn.kernels._templates._arrange import total as total
from ftnn.kernels._templates._arrange import turn as turn
from ftnn.kernels._templates._backward import BackwardArgs as BackwardArgs
from ftnn.kernels._templates._backward import backward as backward
from ftnn.kernels._templates._backward import slopes_of as slopes_of
from ftnn.kernels._templates._dense import DenseBackwardArgs as DenseBackwardArgs
from ftnn.kernels._templates._dense import DenseForwardArgs as DenseForwardArgs
from ftnn.kernels._templates._dense import dense_backward as dense_backward
from ftnn.kernels._templates._dense import dense_forward as dense_forward
from ftnn.kernels._templates._forward import ForwardArgs as ForwardArgs
from ftnn.kernels._templates._forward import forward as forward
from ftnn.kernels._templates._kernel import TILE as TILE
from ftnn.kernels._templates._kernel import Kernel as Kernel
from ftnn.kernels._templates._memory import MemoryArgs as MemoryArgs
from ftnn.kernels._templates._memory import memory_forward as memory_forward
from ftnn.kernels._templates._memory import memory_update as memory_update
from ftnn.kernels._templates._zeros import SubsetSumArgs as SubsetSumArgs
from ftnn.kernels._templates._zeros import subset_sums as subset_sums
from ftnn.kernels._templates._zeros import subset_sums_size as subset_sums_size
