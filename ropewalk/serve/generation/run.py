"""One answer that is being written: its texts, the choice of its tokens, and the text that they become."""

from __future__ import annotations

from collections.abc import Sequence as Many

import torch
from torch import Tensor

from ropewalk.serve.generation.request import CANCELLED, Delta, Request, SessionState, Token, Usage
from ropewalk.serve.generation.sampling import Chooser, token_of
from ropewalk.serve.generation.sequence import Sequence
from ropewalk.serve.generation.text import TextWriter


class Run:
    """A request with its sequences, from the first chunk of its prompt to its last token."""

    def __init__(
        self, request: Request, sequences: list[Sequence], chooser: Chooser, writer: TextWriter, ends: frozenset[int]
    ) -> None:
        self.request, self.sequences, self._writer, self.chooser = request, sequences, writer, chooser
        self._ends = frozenset() if request.sampling.ignore_eos else ends
        self._prompt_tokens = sum(map(len, request.prompts))
        self.answer: list[int] = []  # its tokens, without the one that ends it
        self._made: list[Token] = []
        self._count = 0
        self._prompt: list[Token] = []
        self._logits: list[Tensor | None] = [None] * len(sequences)
        self.attained = 0  # prompt tokens that were read for it: who has least is served first
        self.cancelled = False

    @property
    def extension(self) -> str:
        """The name of its extension."""
        return self.request.extension

    @property
    def reading(self) -> Sequence | None:
        """The first text whose prompt is not read."""
        return next((one for one in self.sequences if len(one.unread) > 1 or not self._begun(one)), None)

    @property
    def longest(self) -> int:
        """The length that its longest text may reach."""
        return max(one.total for one in self.sequences) + self._missing

    @property
    def held(self) -> int:
        """How many pages its texts hold: before it runs, those of its session, which make no room for it."""
        return sum(one.held for one in self.sequences)

    @property
    def pages_needed(self) -> int:
        """How many more pages its texts may take, at most."""
        return sum(one.pages_needed(one.total + self._missing) for one in self.sequences)

    @property
    def _missing(self) -> int:
        """Tokens that it may still write."""
        return max(self.request.sampling.max_tokens - self._count, 0)

    def reuse(self) -> None:
        """Take the longest known beginning of every new text."""
        if not self.request.prompt_logprobs:
            for one in self.sequences:
                if not one.length:
                    one.reuse()

    def give_up_reuse(self) -> None:
        """Return what `reuse` took."""
        for one in self.sequences:
            one.give_up_reuse()

    def read(self, sequence: Sequence, logits_tv: Tensor, ids: Many[int]) -> None:
        """Tokens of one text were read; `logits_tv` follow them, all of them or the last."""
        if self.request.prompt_logprobs and not self._count:
            self._note_prompt(sequence, logits_tv, ids)
        sequence.advance(len(ids))
        done = not sequence.unread
        self._logits[self.sequences.index(sequence)] = logits_tv[-1] if done else None

    @property
    def ready(self) -> bool:
        """Whether the logits of all texts are there."""
        return all(logits is not None for logits in self._logits)

    def choose(self, token: int | None = None) -> Delta | None:
        """The next token, chosen before or here, and what becomes of it; nothing where no text is certain yet."""
        sampling = self.request.sampling
        if sampling.max_tokens == 0:
            return self._last("", "length")
        chosen = Token(token) if token is not None else self.chooser.choose(torch.stack(self._logits))  # type: ignore[arg-type]
        self._logits = [None] * len(self.sequences)
        self._count += 1
        if chosen.id in self._ends:
            return self._last(self._writer.finish(), "stop")
        for sequence in self.sequences:
            sequence.unread.append(chosen.id)
        self.answer.append(chosen.id)
        self._made.append(chosen)
        text = self._writer.push(chosen.id)
        if self._writer.stopped:
            return self._last(text, "stop")
        if self._count == sampling.max_tokens:
            text += self._writer.finish()
            return self._last(text, "stop" if self._writer.stopped else "length")
        return self._delta(text) if text or sampling.logprobs is not None else None

    @property
    def logit_v(self) -> Tensor | None:
        """The logits of its only text."""
        return self._logits[0]

    @property
    def state(self) -> SessionState:
        """Of its session, once the answer is whole."""
        one = self.sequences[0]
        return SessionState(one.total, one.forgotten, self.request.said, tuple(self.answer))

    def cancel(self) -> Delta:
        """The last delta of an answer that nobody wants any more."""
        return self._last("", CANCELLED)

    def _begun(self, sequence: Sequence) -> bool:
        """Whether what is unread is the token that was chosen last."""
        return self._count > 0 or self._logits[self.sequences.index(sequence)] is not None

    def _delta(self, text: str) -> Delta:
        tokens, prompt, self._made, self._prompt = tuple(self._made), tuple(self._prompt), [], []
        return Delta(text, tokens, prompt=prompt)

    def _last(self, text: str, reason: str) -> Delta:
        return self._delta(text)._replace(finish_reason=reason, usage=self._usage())

    def _usage(self) -> Usage:
        if self.request.session is None:
            return Usage(self._prompt_tokens, self._count, sum(sequence.reused for sequence in self.sequences))
        one = self.sequences[0]
        plain = Usage(self._prompt_tokens, self._count, 0)
        return plain._replace(session_tokens=one.total, forgotten_tokens=one.forgotten)

    def _note_prompt(self, sequence: Sequence, logits_tv: Tensor, ids: Many[int]) -> None:
        """The log-probabilities of the prompt's tokens: each from the logits before it."""
        count = self.request.sampling.logprobs or 0
        if not self._prompt:
            self._prompt.append(Token(ids[0]))
        after = sequence.unread[1 : len(ids) + 1]
        self._prompt += [token_of(logit_v, token, count) for logit_v, token in zip(logits_tv, after, strict=False)]
