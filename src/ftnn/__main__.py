"""`python -m ftnn`."""

import signal
import sys

try:
    from ftnn.cli import app

    app()
except KeyboardInterrupt:  # before the command could handle it
    sys.exit(130)
finally:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt
    # If Ctrl-C interrupted an `exec` of source text (dataclasses use it), Python remembers it as unhandled
    # until the next `exec`, and would end the process with a signal instead of our exit code.
    exec("")
