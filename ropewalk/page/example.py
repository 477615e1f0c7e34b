"""An example text, read by a model with its weights: loss by position, and where attention goes.

The page opens with what this shows. The texts are held out, as those of `compare`, and the time that they need is
estimated as it does. How far they go is what half a minute for each line allows, however many lines are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.errors import DoesNotFit, RopewalkError
from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import minutes
from ropewalk.hf.attach.handle import ATTENTION
from ropewalk.hf.probe.facts import parse_for_config
from ropewalk.hf.use.inspect import sizes
from ropewalk.measure.arguments import RunOptions
from ropewalk.measure.comparison.plan import EXTENSION_SLOWDOWN, Cost, calibrated_in_fastest, calibration_text, is_free
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.losses import edges, token_losses
from ropewalk.measure.opened_model import OpenedModel, open_model
from ropewalk.measure.progress import WorkProgress, showing_progress
from ropewalk.methods.spec import Json
from ropewalk.page.attended import queries, read_text

BASE = "rope"  # the line of the unchanged model on the page
CORPORA = ("stdlib", "all:stdlib")  # as compare has them: the second where the first has no text that is long enough
TIMES = (8, 6, 4, 3, 2, 1.5)  # lengths that are tried, in trained lengths
MOST_TEXTS, CURVE_POINTS = 4, 256  # texts; and points of a curve
READING_SECONDS = 30.0  # that reading under a line may take, by the estimate
MOST_UNASKED = 1800.0  # seconds of all reading that nobody asked for
MOSTLY = 0.9  # share of the places after a break that are outside
HALF_A_NAT, SAME = 0.5, 0.25  # nats above the base model alone: from which a line is outside; up to which means agree


class Found(NamedTuple):
    """What a curve shows: `breaks` at a place, `reads_on` to the end, or `rises` by so many nats at no clear place."""

    kind: str
    at: int = 0  # the place of a break
    more: float = 0.0  # nats beyond the trained length, above the base model alone


def read_example(
    model: str, lines: Sequence[str], most: int | None, options: RunOptions, *, asked: bool = True
) -> Json:
    """What the page shows of a model that reads: the unchanged one and the lines, on the same texts.

    Args:
        model: with its weights.
        lines: extensions. What the model refuses is told, and not read.
        most: tokens of a text, at most; by default 8 trained lengths.
        options: how the model is loaded.
        asked: whether somebody asked for it; if not, what takes long is refused.
    """
    with open_model(model, options) as opened:
        names, inspection = list(dict.fromkeys([BASE, *lines])), sizes(opened.model)
        known, free = inspection.facts.trained_len, is_free(model, opened.model, options)
        ids_n = calibration_text(opened.tokenizer, known)
        with showing_progress("timing the model", shown="lines"):
            cost = calibrated_in_fastest(opened.model, inspection, ids_n, free=free, workers=1)
        subject, texts, seconds = _subject(opened, cost, known, most, len(names) + 1)  # and the base model alone
        extensions, refused = _extensions(subject, names)
        what = "1 held-out text" if texts == 1 else f"{texts} held-out texts"
        label = f"reading {what} of {subject.longest:,} tokens under {', '.join(extensions)}"
        if seconds > MOST_UNASKED and not asked:
            raise DoesNotFit.because("--read", f"{label} takes about {minutes(seconds)}", remedy="--read reads it")
        ids_bn = torch.stack([subject.begun(passage, subject.longest) for passage in subject.passages(texts)])
        with showing_progress(label, shown="lines") as bar:
            bar.note(f"{label}: about {minutes(seconds)}; --no-read leaves it out")
            begun = time.monotonic()
            words = subject.tokenizer.batch_decode([[one] for one in ids_bn[0].tolist()])
            rows = queries(words[:-1])  # the last token is told, not read
            count = len(extensions) + 1
            losses, keys = _read(subject, extensions, ids_bn, rows, refused, bar)
            with subject.as_trained():
                alone = read_alone(
                    subject.model, ids_bn, losses[BASE], known, lambda part: bar(len(extensions) + part, count)
                )
            bar.note(f"read in {minutes(time.monotonic() - begun)}")
    return {
        "model": subject.name,
        "length": subject.longest,
        "texts": texts,
        "window": window_of(known),
        "refused": refused,
        **curves(losses, alone, known),
        "tokens": words,
        "queries": rows,
        "keys": keys,
    }


def window_of(trained_len: int) -> int:
    """Tokens over whose losses a mean is taken: a sixteenth of the trained length."""
    return max(1, trained_len // 16)


def read_alone(
    model: nn.Module, ids_bn: Tensor, whole_n: Tensor, trained_len: int, told: Callable[[float], None]
) -> Tensor:
    """The mean loss of every token after half of a trained length to a whole one, and nothing before: in windows.

    The first of them is read already: `whole_n` are the base model's losses where it reads all of the text.
    """
    step, parts = max(1, trained_len // 2), [whole_n[: trained_len - 1]]
    for start in (starts := range(step, ids_bn.shape[1] - trained_len + step, step)):
        told((len(parts) - 1) / len(starts))
        losses_bn = token_losses(model, ids_bn[:, start : start + trained_len]).losses_bn
        parts.append(losses_bn[:, trained_len - step - 1 :].double().mean(0).cpu())
    return torch.cat(parts)


def curves(losses: dict[str, Tensor], alone: Tensor, trained_len: int) -> Json:
    """Of each line its curve, in as many points as are drawn, and what it shows; beside the base model `alone`."""
    window = window_of(trained_len)
    smooth = {line: _smoothed(mean, window) for line, mean in losses.items()}
    points = sorted({max(window, stop) for _, stop in pairwise(edges(len(alone), CURVE_POINTS))})

    def drawn(curve: Tensor) -> list[float]:
        return [round(float(curve[at - window]), 3) for at in points]

    return {
        "at": points,
        "losses": {line: drawn(curve) for line, curve in smooth.items()},
        "alone": drawn(_smoothed(alone, window)),
        "found": {line: found(of_line, alone, trained_len)._asdict() for line, of_line in losses.items()},
    }


def found(losses: Tensor, alone: Tensor, trained_len: int) -> Found:
    """What a line shows beside the base model that reads no more than the last trained length: it never breaks.

    A line breaks at the first place where it is outside, as it is at nine tenths of all later places, and of those of
    the next quarter of the trained length. A dip back is no recovery; and a hard passage at the beginning, where
    nothing stands before a token, is no break. What follows must be a quarter of the text beyond the trained length.
    Outside is what is well above the base model alone at the same place: passages are hard or easy for both, and which
    other lines are read does not matter.
    The line reads on if it does not break, and its mean beyond the trained length is not clearly above.
    """
    window = window_of(trained_len)
    outside = _smoothed(losses, window) > _smoothed(alone, window) + HALF_A_NAT
    broken = _stays(outside, trained_len // 4)
    end = int(broken[0]) if len(broken) else len(outside)  # of the places within; one ends `window` tokens later
    if len(outside) - end >= max(1, (len(losses) - trained_len) // 4):
        return Found("breaks", at=end + window)
    beyond = (losses - alone)[trained_len - 1 :]
    more = float(beyond.mean()) if len(beyond) else 0.0
    return Found("reads_on") if more <= SAME else Found("rises", more=round(more, 2))


def _stays(outside: Tensor, stretch: int) -> Tensor:
    """The places outside from which on most are outside too: of all that follow, and of a stretch alone."""
    count = len(outside)
    sums = torch.cat([torch.zeros(1), outside.double().cumsum(0)])
    places = torch.arange(count)
    near = (places + stretch).clamp(max=count)
    share = (sums[-1] - sums[:-1]) / (count - places)
    of_stretch = (sums[near] - sums[:-1]) / (near - places)
    return (outside & (share >= MOSTLY) & (of_stretch >= MOSTLY)).nonzero().flatten()


def _smoothed(losses: Tensor, window: int) -> Tensor:
    """The mean of the last `window` losses at each place that has as many before it."""
    return losses.double().unfold(0, window, 1).mean(-1)


def _subject(
    opened: OpenedModel, cost: Cost, trained_len: int, most: int | None, lines: int
) -> tuple[Subject, int, float]:
    """Texts as long, and then as many, as a line's time allows, at least one of 1.5 trained lengths; and the time."""
    lengths = [int(trained_len * times) for times in TIMES]
    lengths = [length for length in lengths if most is None or length <= most] or [most or lengths[-1]]
    for length in lengths:
        needed = EXTENSION_SLOWDOWN * cost.seconds(length)  # of a text under a line
        if needed > READING_SECONDS and length != lengths[-1]:
            continue
        for corpus in CORPORA:
            subject = opened.subject(corpus, length)
            if count := subject.count(max(1, min(MOST_TEXTS, int(READING_SECONDS / needed)))):
                return subject, count, lines * count * needed
    raise DoesNotFit("corpus", f"one with a held-out text of {lengths[-1]:,} tokens", " + ".join(CORPORA))


def _extensions(subject: Subject, names: Sequence[str]) -> tuple[dict[str, Extension], dict[str, str]]:
    """The extensions by line, built for the length that is read; and why a line cannot be read under."""
    config, built, refused = subject.model.config.get_text_config(), {BASE: Extension()}, dict[str, str]()
    for name in names:
        try:
            if name != BASE:
                built[name] = parse_for_config(config, name, subject.longest, subject.facts)
        except RopewalkError as reason:
            refused[name] = str(reason)
    return built, refused


def _read(
    subject: Subject,
    extensions: dict[str, Extension],
    ids_bn: Tensor,
    rows: Sequence[int],
    refused: dict[str, str],
    bar: WorkProgress,
) -> tuple[dict[str, Tensor], dict[str, list[list[float]]]]:
    """Of each line the mean loss of every token, and what some tokens of the first text attend to."""
    losses, keys = dict[str, Tensor](), dict[str, list[list[float]]]()
    for done, (name, extension) in enumerate(extensions.items()):

        def told(count: int, done: int = done) -> None:
            bar(done + count / ids_bn.numel(), len(extensions) + 1)  # and the base model alone

        told(0)
        try:
            with subject.under(extension, mode=ATTENTION):
                first = read_text(subject, ids_bn[:1], rows, told)
                others = [token_losses(subject.model, ids_bn[1:]).losses_bn.double().cpu()] if len(ids_bn) > 1 else []
        except RopewalkError as reason:
            if name == BASE:
                raise
            refused[name] = str(reason)
            continue
        losses[name] = torch.cat([first.losses_n[None], *others]).mean(0)
        keys[name] = first.keys
    return losses, keys
