"""The process that first imported ftnn. Imported with the package, not with the first kernel.

A fork between the two leaves torch's threads in the parent, and a child that uses them waits forever.
"""

from __future__ import annotations

import os

FIRST = os.getpid()
"""In a fork, `os.getpid()` differs from this."""
