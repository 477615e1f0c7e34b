"""What tests of training look at."""

from transformers import TrainerCallback


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


class StopAt(TrainerCallback):
    """Save and stop after this step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            control.should_training_stop = control.should_save = True
