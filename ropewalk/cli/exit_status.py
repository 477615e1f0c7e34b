"""What the command returns to the shell."""

from __future__ import annotations

NOT_THE_SAME = 1  # `check`: the engine computes something else, refuses, or nobody knows
REFUSED = 2  # an error of the user's input
STOPPED = 130  # ended by Ctrl-C or SIGTERM
