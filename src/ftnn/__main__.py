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
    # If Ctrl-C came inside an `exec` of source text (dataclasses use it), Python remembers it as unhandled until
    # the next one, and would end the process with a signal in spite of our exit code.
    exec("")
