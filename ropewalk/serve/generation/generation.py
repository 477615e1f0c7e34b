"""One answer: its texts, the choice of its tokens, and the text that they become."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ropewalk.errors import InvalidValue
from ropewalk.hf.checkpoint.tokens import GrowingText
from ropewalk.hf.use.long_text import sampler
from ropewalk.methods.decoding import Decoding
from ropewalk.serve.generation.pages import PagedText
from ropewalk.serve.generation.request import CANCELLED, Request, SessionState, Token, Usage

Queue = asyncio.Queue[tuple["Generation", Token | BaseException]]  # of tokens and failures, each with whose it is


class Generation:
    """The answer to a request, from the first chunk of its prompt to its last token.

    Its reader iterates over it in an event loop, and may cancel it. All else belongs to the engine's thread.
    """

    def __init__(self, request: Request, queue: Queue | None = None) -> None:
        self.request = request
        self.queue: Queue = asyncio.Queue() if queue is None else queue
        self.finished = False  # whether the last token, or a failure, is in the queue
        self.cancelled = False
        self.texts: list[PagedText] = []
        self.prompt: list[Token] = []  # the tokens of the prompt, where their log-probabilities were asked for
        self.usage: Usage | None = None  # once it has ended
        self.attained = 0  # prompt tokens that were read for it: who has least is served first
        self.answer: list[int] = []  # its tokens, without the one that ends it
        self._count = 0  # tokens that were chosen

    def begin(self, texts: list[PagedText], tokenizer: Any, ends: frozenset[int], device: torch.device) -> None:
        """Its texts are ready to be read; the token ids `ends` end the answer."""
        self.texts = texts
        self.sampler = TokenSampler(self.request, device)
        self._writer = TextWriter(tokenizer, self.request.sampling.stop)
        self._ends = frozenset() if self.request.sampling.ignore_eos else ends
        self.logits: list[Tensor | None] = [None] * len(texts)  # that the next token is chosen by

    async def __aiter__(self) -> AsyncIterator[Token]:
        reason = None
        while reason is None:
            _, token = await self.queue.get()
            if isinstance(token, BaseException):
                raise token
            yield token
            reason = token.finish_reason

    def cancel(self) -> None:
        """End within one token. Nothing happens to an answer that has ended."""
        self.cancelled = True

    def put(self, token: Token | BaseException) -> None:
        """Hand a token to the reader, in the event loop."""
        self.finished = is_last(token)
        self.queue.put_nowait((self, token))

    @property
    def reading(self) -> PagedText | None:
        """The first text whose prompt is not read yet."""
        for text, logits in zip(self.texts, self.logits, strict=True):
            if len(text.unread) > 1 or not (self._count or logits is not None):
                return text
        return None

    @property
    def held(self) -> int:
        """How many pages its texts hold: before it runs, those of its session."""
        return sum(text.held for text in self.texts)

    @property
    def pages_needed(self) -> int:
        """How many more pages its texts may take, at most."""
        return sum(text.pages_needed(text.total + self._remaining) for text in self.texts)

    @property
    def _remaining(self) -> int:
        return max(self.request.sampling.max_tokens - self._count, 0)

    def read(self, text: PagedText, logits_tv: Tensor, ids: Sequence[int]) -> None:
        """Tokens of one text were read. `logits_tv` follow them: all of them, or the last."""
        if self.request.prompt_logprobs and not self._count:
            alternatives = self.request.sampling.logprobs or 0
            self.prompt = self.prompt or [Token(ids[0])]
            after = text.unread[1 : len(ids) + 1]
            self.prompt += [with_logprobs(x, token, alternatives) for x, token in zip(logits_tv, after, strict=False)]
        text.advance(len(ids))
        self.logits[self.texts.index(text)] = None if text.unread else logits_tv[-1]

    @property
    def ready(self) -> bool:
        """Whether the next token can be chosen."""
        return all(logits is not None for logits in self.logits)

    def choose(self, id: int | None = None) -> Token:
        """The next token, chosen here or before."""
        if self.request.sampling.max_tokens == 0:
            return self.end("length")
        token = Token(id) if id is not None else self.sampler.choose(torch.stack(self.logits))  # type: ignore[arg-type]
        self.logits = [None] * len(self.texts)
        self._count += 1
        if token.id in self._ends:
            return self.end("stop", self._writer.finish())
        for text in self.texts:
            text.unread.append(token.id)  # type: ignore[arg-type]
        self.answer.append(token.id)  # type: ignore[arg-type]
        new = self._writer.push(token.id)  # type: ignore[arg-type]
        if not self._writer.stopped and self._remaining:
            return token._replace(text=new)
        new += self._writer.finish()
        last = self.end("stop" if self._writer.stopped else "length", new)
        return last._replace(id=token.id, logprob=token.logprob, top=token.top)

    def end(self, reason: str = CANCELLED, text: str = "") -> Token:
        """The last token of the answer; by default of one that nobody wants any more."""
        read = sum(map(len, self.request.prompts))
        computed = self.texts[0].extension if self.texts else self.request.extension
        self.usage = Usage(read, self._count, extension=None if computed == self.request.extension else computed)
        if self.request.session is not None:
            state = self.state
            self.usage = self.usage._replace(session_tokens=state.tokens, forgotten_tokens=state.forgotten)
        return Token(None, text=text, finish_reason=reason)

    @property
    def state(self) -> SessionState:
        """The state of its session, once the answer is complete."""
        text = self.texts[0]
        return SessionState(text.total, text.forgotten, self.request.said, tuple(self.answer))


def is_last(token: Token | BaseException) -> bool:
    """Whether nothing comes after it."""
    return isinstance(token, BaseException) or token.finish_reason is not None


class TokenSampler:
    """Chooses the tokens of one answer, by random numbers of its own."""

    def __init__(self, request: Request, device: torch.device) -> None:
        sampling, generator = request.sampling, torch.Generator(device=device)
        seed = generator.seed() if sampling.seed is None else sampling.seed
        generator.manual_seed(seed % 2**63)
        self._draw = sampler(sampling.temperature, sampling.top_k, sampling.top_p, generator)
        self._logprobs, self._decoding = sampling.logprobs, request.decoding
        self._last: int | None = None  # the context that the rule chose before
        # Whether each token is that of the largest logit, and nothing else is asked for.
        self.plain = sampling.temperature == 0 and self._logprobs is None and self._decoding is None

    def choose(self, logits_bv: Tensor) -> Token:
        """The next token after one text, or after several that are combined."""
        logit_v = logits_bv[0] if self._decoding is None else self._combine(self._decoding, logits_bv)
        id = int(self._draw(logit_v[None])[0])
        return Token(id) if self._logprobs is None else with_logprobs(logit_v, id, self._logprobs)

    def _combine(self, decoding: Decoding, logits_bv: Tensor) -> Tensor:
        """The rule wants the text without a context first."""
        logp_bv = logits_bv.float().log_softmax(-1).roll(1, 0)
        combined = decoding.combine(logp_bv.cpu(), self._last)
        if combined.logp.isnan().any():
            sentence = "log-probabilities leave the range of numbers by this rule"
            raise InvalidValue.because("decoding", sentence, remedy="take a smaller beta")
        self._last = combined.chosen
        return combined.logp.to(logits_bv.device)


def with_logprobs(logit_v: Tensor, id: int, alternatives: int) -> Token:
    """A token with its log-probability, and with the likeliest ones in its place."""
    logp_v = logit_v.float().log_softmax(-1)
    top = torch.topk(logp_v, min(alternatives, len(logp_v)))
    return Token(id, float(logp_v[id]), tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True)))


class TextWriter:
    """The text of one answer while its tokens arrive. Stop texts end it, and none of them is shown."""

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()) -> None:
        self._text, self._stop = GrowingText(tokenizer), [text for text in stop if text]
        self._held = ""  # text that may be the beginning of a stop text
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that is certain with one more token; `stopped` is set where a stop text has ended the answer."""
        text = self._cut(self._held + self._text.push(token))
        if self.stopped:
            return text
        ends = (n for stop in self._stop for n in range(1, len(stop)) if text.endswith(stop[:n]))
        certain = len(text) - max(ends, default=0)
        self._held = text[certain:]
        return text[:certain]

    def finish(self) -> str:
        """The rest, at the end of the answer."""
        if self.stopped:
            return ""
        rest, self._held = self._held + self._text.rest(), ""
        return self._cut(rest)

    def _cut(self, text: str) -> str:
        """The text before the stop text that is whole first."""
        ends = [(place + len(stop), place) for stop in self._stop if (place := text.find(stop)) >= 0]
        if not ends:
            return text
        self.stopped, self._held = True, ""
        return text[: min(ends)[1]]
