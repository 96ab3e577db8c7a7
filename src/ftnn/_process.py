"""The process that imported ftnn. This module is imported with the package, not with the first kernel.

After a fork in between, torch's threads exist only in the parent, and a child that uses them waits forever.
"""

from __future__ import annotations

import os

FIRST = os.getpid()
"""`os.getpid()` differs from this in a forked child."""
