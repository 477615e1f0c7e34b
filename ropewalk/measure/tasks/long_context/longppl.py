"""LongPPL: perplexity over key tokens alone, which a reference chose because only far text makes them easy.

At each length the same key tokens of the same texts are read in windows of that length that advance by half of it, so
that only the context differs between lengths; at the longest length the whole text is one window. `perplexity` is that
of all tokens in the same windows. Without `keys` the reference is the measured model itself under `reference`; the key
tokens are computed once and written to `key-tokens-*.json` in the folder of the comparison. With `keys` they come from
such a file, whichever model made it. The reference's own number is a little too low: it chose where it did well.

Source: Fang et al. 2025, arXiv:2410.23771, PKU-ML/LongPPL; deviations: several lengths, and windows for them; texts
without key tokens are left out of the mean; long_context/key_texts.py lists those of the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from ropewalk.errors import Conflict, DoesNotFit
from ropewalk.extension.parsing import read_line
from ropewalk.hf.probe.facts import parse_for_config
from ropewalk.measure.material.measured_by import code_marks
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import LOSS, Estimate, mean
from ropewalk.measure.metrics.perplexity import GAIN, KEY_LOSS, perplexity_of_loss, strided_losses
from ropewalk.measure.tasks.long_context.key_texts import (
    KeyRule,
    KeyText,
    carry_over,
    hash_of,
    key_text,
    near_stride,
    read_key_texts,
    require_reader,
    write_key_texts,
)
from ropewalk.measure.tasks.task import Task
from ropewalk.methods.record import POSITIVE
from ropewalk.methods.spec import Json

REFERENCE = "rerope+log_n"  # the lowest loss on long texts of what needs no training
TOKENS_LOST = 16  # tokens that a text may lose when it is written as text and tokenised again


@dataclass(frozen=True, kw_only=True)
class LongPPL(Task):
    name: ClassVar[str] = "longppl"
    headline: ClassVar[str] = "longppl"
    keys: Annotated[str | None, "a file of texts with key tokens; by default they are made"] = None
    reference: Annotated[str, "the extension under which the model chooses key tokens"] = REFERENCE
    gain: Annotated[float, POSITIVE, "nats by which the far text lowers the loss of a key token, at least"] = GAIN
    most: Annotated[float, POSITIVE, "nats below which the loss of a key token is with the far text"] = KEY_LOSS

    def check(self) -> None:
        """A file has its own reference and thresholds."""
        if self.keys is not None and (self.reference, self.gain, self.most) != (REFERENCE, GAIN, KEY_LOSS):
            sentence = "longppl has keys and a reference, gain or most: the file's key tokens are chosen already"
            raise Conflict.because("keys", sentence, remedy="leave out either")

    def identity(self, sample: int) -> Json:
        """With a hash of the text and its key tokens instead of the file's path."""
        return super().identity(sample) | ({"keys": self._from_file(sample).mark} if self.keys else {})

    def prepared(self, subject: Subject, folder: Path) -> Task:
        """Choose the key tokens once and store them in the folder; a file that is there already is used."""
        if self.keys is not None:
            return self
        _require_far_text(subject)
        made = {
            "reference": {"model": subject.name, **subject.marks, "extension": self.reference},
            **{"gain": self.gain, "most": self.most, "window": subject.facts.trained_len, "length": subject.longest},
            "stride": near_stride(subject.facts.trained_len),
            "measured by": code_marks(),
        }
        marks = subject.text_marks(self.samples)[: self.samples]
        place = folder / f"key-tokens-{hash_of(f'{made} {marks}')}.json"
        if not place.is_file():
            texts = [key_text(subject, sample, self._rule(subject)) for sample in range(self.samples)]
            require_reader(texts, self.reference)
            write_key_texts(place, texts, made)
        return replace(self, keys=str(place), reference=REFERENCE, gain=GAIN, most=KEY_LOSS)

    def require(self, subject: Subject, lengths: Sequence[int]) -> None:
        """Refuse files with too few or too short texts, and tokenizers under which key tokens are lost."""
        if self.keys is None:
            return _require_far_text(subject)
        for sample in range(self.samples):
            tokens = len(carry_over(self._from_file(sample), subject.tokenizer).ids)
            if tokens + TOKENS_LOST < max(lengths):
                rule = f"at most {tokens}, the tokens of text {sample} of {self.keys}"
                raise DoesNotFit("lengths", rule, max(lengths), remedy="ask for shorter ones, or make longer texts")

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One text; losses in nats per token."""
        key = self._from_file(sample) if self.keys else key_text(subject, sample, self._rule(subject))
        text = carry_over(key, subject.tokenizer)
        window = min(length, len(text.ids) - 1)
        ids, stride = text.ids.to(subject.device), max(1, window // 2)
        losses = strided_losses(subject.model, ids, window=window, stride=stride, begin=subject.begin).cpu()
        count = int(text.keys.sum())
        return {
            "loss": float(losses[text.keys].double().mean()) if count else 0.0,
            "all": float(losses.double().mean()),
            "keys": count,
            "tokens": len(losses),
            "carried": text.share,
        }

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """Means over tokens, with intervals over texts."""
        keyed = [result for result in results if result["keys"]]
        if not keyed:
            remedy = "take longer texts, a lower gain or a higher most"
            raise DoesNotFit("texts", "at least one with key tokens", f"none of {len(results)}", remedy=remedy)
        loss = mean([result["loss"] for result in keyed], [result["keys"] for result in keyed], least=LOSS[0])
        everything = mean(
            [result["all"] for result in results], [result["tokens"] for result in results], least=LOSS[0]
        )
        return {"longppl": perplexity_of_loss(loss), "loss": loss, "perplexity": perplexity_of_loss(everything)}

    def _rule(self, subject: Subject) -> KeyRule:
        config = subject.model.config.get_text_config()
        reference = parse_for_config(config, read_line(self.reference), subject.longest, subject.facts)
        return KeyRule(reference, self.gain, self.most)

    def _from_file(self, sample: int) -> KeyText:
        texts = read_key_texts(str(self.keys))
        if sample >= len(texts):
            remedy = f"ask for samples={len(texts)}, or make the file with more"
            raise DoesNotFit("samples", f"at most {len(texts)}, the texts of {self.keys}", self.samples, remedy=remedy)
        return texts[sample]


def _require_far_text(subject: Subject) -> None:
    """A text within the trained length has no far part."""
    if subject.longest <= subject.facts.trained_len:
        rule = f"one above the trained length ({subject.facts.trained_len}), beyond which far text begins"
        raise DoesNotFit("longest length", rule, subject.longest, remedy="ask for longer lengths")
