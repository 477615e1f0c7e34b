"""What every process of a launched training does: FOLDER [step at which the launcher is told to end]."""

import os
import signal
import sys
import time
from pathlib import Path

from transformers import TrainerCallback

from ropewalk.train.data.packs import PackedRows
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.train import TrainingPlan, train

from train.texts import tokenizer, tokens

SHAPE = ModelShape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=32)
STEPS = 10


class EndTheLauncher(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == self.step and os.environ["RANK"] == "1":
            os.kill(os.getppid(), signal.SIGTERM)
            heard = signal.getsignal(signal.SIGTERM).__self__
            while not heard.came:  # the launcher passes it on when it finds the time
                time.sleep(0.01)


def run(folder, rows, name, stop=None):
    data = PackedRows(tokens(folder), tokenizer(), length=32, count=200, puzzles={"repeats": 0.5})
    plan = TrainingPlan(steps=STEPS, rows=rows, save_every=4, log_every=1, progress=False)
    callbacks = [] if stop is None else [EndTheLauncher(stop)]
    return train(new_small_model(SHAPE), data, plan, folder / name, callbacks=callbacks)


if __name__ == "__main__":
    run(Path(sys.argv[1]), 2, "two", *map(int, sys.argv[2:]))
