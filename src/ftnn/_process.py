"""The process that imported ftnn first: imported with the package, not with the first kernel.

A fork between the two leaves torch's threads in the parent. Who calls for them in the child waits forever.
"""

from __future__ import annotations

import os

FIRST = os.getpid()
"""Any other number means that this process is a fork."""
