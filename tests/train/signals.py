"""Signals that come while a training saves, and the trainings that began."""

import os
import signal
from contextlib import contextmanager

from transformers import PreTrainedModel, Trainer


@contextmanager
def heard():
    """Ctrl-C is heard; tests in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def trainings(monkeypatch):
    """The trainings that begin from now on, by their folders."""
    folders, train = [], Trainer.train

    def training(trainer, *args, **kwargs):
        folders.append(trainer.args.output_dir)
        return train(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train", training)
    return folders


def sending(number, monkeypatch, moment):
    """Send a signal once, in the middle of the last checkpoint or of the model."""
    sent, of_class, of_trainer = [], PreTrainedModel.save_pretrained, Trainer._save_checkpoint

    def send():
        if not sent:
            sent.append(number)
            os.kill(os.getpid(), number)

    def save_pretrained(model, place, *args, **kwargs):
        if moment == "model" and "checkpoint" not in str(place):
            send()
        return of_class(model, place, *args, **kwargs)

    def save_checkpoint(trainer, *args, **kwargs):
        if moment == "checkpoint" and trainer.state.global_step == trainer.state.max_steps:
            send()
        return of_trainer(trainer, *args, **kwargs)

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", save_pretrained)
    monkeypatch.setattr(Trainer, "_save_checkpoint", save_checkpoint)
    return sent
