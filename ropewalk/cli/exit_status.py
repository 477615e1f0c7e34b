"""What the command returns to the shell; docs/command-line.md is written from this."""

from __future__ import annotations

DONE = 0
NOT_THE_SAME = 1
REFUSED = 2
STOPPED = 130
READER_GONE = 141  # as a shell counts a process that SIGPIPE ended

MEANINGS = {
    DONE: "done",
    NOT_THE_SAME: "`check`: the engine computes something else, refuses the checkpoint, or its result is not known;"
    " `check --running`: the schedule is not in force, or that cannot be told."
    " `compare --redo`: a figure of the row is another one now."
    " From any other verb, with a traceback: a bug",
    REFUSED: "refused: one line on the error stream says what is wrong, and what to do",
    STOPPED: "ended by Ctrl-C, `train` and `compare --ray` by SIGTERM too."
    " `train`, `compare` and `fit` continue when the same command is run again",
    READER_GONE: "the reader of the output went away, as in `ropewalk show | head`",
}
