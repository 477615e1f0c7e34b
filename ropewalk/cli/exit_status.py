"""What the command returns to the shell."""

from __future__ import annotations

REFUSED = 2  # an error of the user's input
STOPPED = 130  # ended by Ctrl-C or SIGTERM
