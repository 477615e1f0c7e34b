"""The verdict on one architecture: a small model is made, put under extensions, and read in every way."""

from __future__ import annotations

import tempfile
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import transformers
from sweep.families import Family
from sweep.readings import PADDING, READINGS, Rows
from torch import Tensor

import ropewalk as rw
from ropewalk.errors import RopewalkError
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import parse_for
from ropewalk.hf.attach.attention import apply_attention
from ropewalk.hf.attach.extend import attach_layers, extended
from ropewalk.hf.attach.handle import ATTENTION
from ropewalk.hf.probe.host import quiet
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.hf.use.inspect import Inspection, inspect

TEXT, TRAINED, NEAR = 112, 64, 16  # tokens: of the text, that a model was trained on, of a window that changes nothing
CLOSE = 2e-3  # of the largest logit: float32, sums in another order
AS_FAR = 10  # times as far from itself as the base model is, where rounding alone brings that far
ROUNDING, DRAWS = 1e-5, 3  # of an embedding; how often the noise is drawn
MOSTLY = 0.85  # of all tokens, where experts and top-k keys are chosen by numbers that rounding moves
NOTHING = 2e-5  # of the largest logit: what our attention's rounding may move
SILENT = ("rope", "randomized", "pose")  # the rotation as trained; numbers that texts have in training alone
STATIC, OTHERS = "pi:factor=4", ("rerope:window=16", "dynamic_yarn", "streaming:window=56,n_sink=4")
UNROTATED = ("log_n", "window:window=56", "streaming:window=56,n_sink=4", "alibi")
FAMILIAR = {
    "rerope": NEAR,
    "dynamic_yarn": TRAINED - 4,
    "window": NEAR,
}  # tokens that an extension does not change; else 1. Some models count positions from 1 or 2

Result = TypeVar("Result")


class Verdict(NamedTuple):
    """The result for one architecture."""

    name: str
    word: str  # right, static only, unrotated, refused, not made; or wrong, of which there may be none
    layers: tuple[ProbedLayer, ...] = ()
    static: str = ""  # the mode of a static schedule
    notes: str = ""


def verdict(family: Family, name: str, seed: int = 0) -> Verdict:
    """Make a small one, and run it."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = family.small(name)
        except (ValueError, ImportError) as reason:
            return Verdict(name, "not made", notes=_line(f"transformers: {reason}"))
        with torch.no_grad(), quiet(model):
            try:
                return _judged(family, name, model, seed)
            except AssertionError as wrong:
                return Verdict(name, "wrong", notes=_line(str(wrong)))
            except Exception as crash:
                return Verdict(name, "wrong", notes=_line(f"{type(crash).__name__}: {crash}"))


def _judged(family: Family, name: str, model: Any, seed: int) -> Verdict:
    try:
        seen = inspect(model)
    except RopewalkError as reason:
        return Verdict(name, "refused", notes=_line(str(reason)))
    rotates = any(layer.rotating for layer in seen.layers)
    if not rotates and seen.carried:
        return Verdict(name, "refused", seen.layers, notes=_line(seen.carried))
    others = () if seen.carried else OTHERS if rotates else UNROTATED
    run = _Run(family, name, model, seed, [STATIC, *others])
    if others:
        run.reported(seen)
    if not rotates:
        run.others(others)
        return Verdict(name, "unrotated", seen.layers, notes=run.notes())
    try:
        mode = run.static()
    except RopewalkError as reason:
        return Verdict(name, "refused", seen.layers, notes=_line(str(reason)))
    stated = "rotary tables" if mode != ATTENTION else "our attention"
    if seen.carried:
        return Verdict(name, "static only", seen.layers, stated, run.notes(seen.carried))
    run.others(others)
    return Verdict(name, "right", seen.layers, stated, run.notes())


class _Run:
    """One model, and its checks. A failed one raises AssertionError with a sentence."""

    def __init__(self, family: Family, name: str, model: Any, seed: int, lines: Sequence[str]) -> None:
        self.family, self.name, self.model, self.seed = family, name, model, seed
        self.tokens = next((count for count in (TEXT, TRAINED, TRAINED - 4) if self._reads(count)), TEXT)
        texts = [self.rows(line) for line in lines]
        offs = {name: [tried(lambda n=name, t=text: self._off_base(n, t)) for text in texts] for name in READINGS}
        self.base = {name: max(some) for name, some in offs.items() if None not in some}
        self.reasons: dict[str, list[str]] = {}  # of a refusal: what was refused

    def _reads(self, count: int) -> bool:
        """Some models have learned no more positions, or count from the padding's number."""
        return tried(lambda: self.rows("", count).whole()) is not None

    def _off_base(self, name: str, rows: Rows) -> float:
        """How far the base model is from itself when it reads in this way."""
        return self.equal(name, rows, *READINGS[name](rows), CLOSE / 2)

    def rows(self, what: str, count: int | None = None) -> Rows:
        """Texts of their own for every extension, which a seed changes."""
        seed, count = zlib.crc32(f"{self.name} {what} {self.seed}".encode()), count or self.tokens
        long, short = (self.family.text(self.model, n, seed + n) for n in (count, count - PADDING))
        return Rows(self.model, long, short)

    def static(self) -> str:
        """The mode of a static schedule."""
        rows = self.rows(STATIC)
        bare = rows.whole()
        try:
            with extended(self.model, STATIC) as handle:
                self.read(STATIC, rows)
                self.saved(STATIC, rows)
        finally:
            self.as_before(STATIC, rows, bare)
        with extended(self.model, Extension()):
            self.equal("nothing", rows, rows.whole(), bare)
        return handle.mode

    def others(self, lines: Sequence[str]) -> None:
        """All other extensions, by our attention."""
        rows = self.rows("nothing")
        bare = rows.whole()
        with extended(self.model, Extension(), mode=ATTENTION):
            self.equal("nothing by attention", rows, rows.whole(), bare)
        for number, text in enumerate(lines):
            self._other(text, save=number == 0)

    def _other(self, text: str, *, save: bool) -> None:
        rows = self.rows(text)
        bare = rows.whole()
        with extended(self.model, text, mode=ATTENTION) as handle:
            near = FAMILIAR.get(text.split(":")[0], 1)
            if not any(layer.probed.varies for layer in handle.layers):
                self.equal(f"{text} where all is familiar", rows, rows.whole()[:, :near], bare[:, :near])
            self.read(text, rows)
            if save:
                self.saved(text, rows)
        self.as_before(text, rows, bare)

    def reported(self, seen: Inspection) -> None:
        """A preset that changes nothing beyond the trained length is one of which no layer uses any part."""
        rows = self.rows("presets")
        bare, layers, facts = rows.whole(), list(seen.layers), list(seen.layer_facts)
        for advice in seen.methods if self.tokens == TEXT else ():
            if advice.applies and advice.by == "extend" and advice.name not in SILENT:
                extension = parse_for(advice.name, seen.facts, seen.target_len)
                with apply_attention(self.model, extension, attach_layers(layers, facts, extension)):
                    off = _off(rows.whole(), bare)
                unused = seen.changes_nothing(extension)
                assert unused or off > NOTHING, f"{advice.name} moves no logit ({off:.1e}), and no one is told"
                assert not unused or off < CLOSE, f"{advice.name} moves logits by {off:.1e}, and is called unused"

    def read(self, text: str, rows: Rows) -> None:
        """The same logits in every way that the base model reads itself; or refused, with the reason."""
        for name, off in self.base.items():
            try:
                self.equal(f"{text}, {name}", rows, *READINGS[name](rows), max(CLOSE, AS_FAR * off))
            except RopewalkError as reason:
                self.reasons.setdefault(str(reason), []).append(name)
            except AssertionError:
                raise
            except Exception as crash:
                raise AssertionError(f"{text}, {name}: {type(crash).__name__}: {crash}") from crash

    def saved(self, text: str, rows: Rows) -> None:
        """The same logits after it was saved and loaded; or refused, with the reason."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                rw.save(self.model, Path(folder) / "saved")
                again = rw.load(Path(folder) / "saved").eval()
            except RopewalkError as reason:
                self.reasons.setdefault(str(reason), []).append("save")
                return
        with quiet(again):
            self.equal(f"{text}, saved and loaded", rows, Rows(again, rows.text, rows.other).whole(), rows.whole())

    def as_before(self, text: str, rows: Rows, bare: Tensor) -> None:
        """After removal, or a refusal, the logits are restored, bit for bit."""
        assert torch.equal(rows.whole(), bare), f"{text}: after removal the logits differ"

    def equal(self, what: str, rows: Rows, got: Tensor, expected: Tensor, close: float = CLOSE) -> float:
        """How far apart: no more than by the order of sums; in most tokens, where rounding alone changes the model."""
        off = _off(got, expected)
        if not off < close and self._unsteady(rows):
            off = _off(got, expected, MOSTLY)
        assert off < close, f"{what}: off by {off:.1e} of the largest logit"
        return off

    def _unsteady(self, rows: Rows) -> bool:
        """Whether noise as small as rounding moves the logits of some tokens far: another expert, another key."""
        table, before = self.model.get_input_embeddings().weight, rows.whole()
        kept, draw = table.data.clone(), torch.Generator().manual_seed(self.seed)
        try:
            for _ in range(DRAWS):
                table.data.copy_(kept * (1 + ROUNDING * torch.randn(table.shape, generator=draw)))
                if not _off(rows.whole(), before) < CLOSE / 2:
                    return True
            return False
        finally:
            table.data.copy_(kept)

    def notes(self, first: str = "") -> str:
        """Why something does not work."""
        alone = [name for name in READINGS if name not in self.base]
        base = [f"the base model itself differs: {', '.join(alone)}"] if alone else []
        refused = [f"{', '.join(dict.fromkeys(names))} refused: {reason}" for reason, names in self.reasons.items()]
        return "; ".join(_line(note) for note in [*([first] if first else []), *refused, *base])


def tried(attempt: Callable[[], Result]) -> Result | None:
    """None where the base model cannot be read this way."""
    try:
        return attempt()
    except Exception:
        return None


def _off(got: Tensor, expected: Tensor, share: float = 1.0) -> float:
    """How far logits are apart in this share of all tokens, as a part of the largest."""
    apart = (got - expected).abs().amax(-1) / expected.abs().max()
    return float(apart.flatten().quantile(share, interpolation="lower"))


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")[:200]
