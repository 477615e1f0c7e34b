"""The next token of one answer, its log-probability, and the likeliest ones in its place."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.errors import InvalidValue
from ropewalk.hf.use.long_text import sampler
from ropewalk.methods.decoding import Decoding
from ropewalk.serve.generation.request import Sampling, Token


class Chooser:
    """Chooses the tokens of one answer. Its random numbers are its own."""

    def __init__(self, sampling: Sampling, decoding: Decoding | None, device: torch.device) -> None:
        generator = torch.Generator(device=device)
        seed = generator.seed() if sampling.seed is None else sampling.seed
        generator.manual_seed(seed % 2**63)
        self.greedy = sampling.temperature == 0
        self._choose = sampler(sampling.temperature, sampling.top_k, sampling.top_p, generator)
        self._logprobs, self._decoding = sampling.logprobs, decoding
        self._last: int | None = None  # the context that the rule chose before

    @property
    def plain(self) -> bool:
        """Whether the token is the largest logit, and nothing else is asked for."""
        return self.greedy and self._logprobs is None and self._decoding is None

    def choose(self, logits_bv: Tensor) -> Token:
        """The next token after one text, or after several that are combined."""
        logit_v = logits_bv[0] if self._decoding is None else self._combined(self._decoding, logits_bv)
        token = int(self._choose(logit_v[None])[0])
        return token_of(logit_v, token, self._logprobs)

    def _combined(self, decoding: Decoding, logits_bv: Tensor) -> Tensor:
        """The rule wants the text without a context first."""
        logp_bv = logits_bv.float().log_softmax(-1).roll(1, 0)
        combined = decoding.combine(logp_bv.cpu(), self._last)
        if combined.logp.isnan().any():
            sentence = "log-probabilities leave the range of numbers by this rule"
            raise InvalidValue.because("decoding", sentence, remedy="take a smaller beta")
        self._last = combined.chosen
        return combined.logp.to(logits_bv.device)


def token_of(logit_v: Tensor, token: int, logprobs: int | None) -> Token:
    """A token with what is asked of it."""
    if logprobs is None:
        return Token(token)
    logp_v = logit_v.float().log_softmax(-1)
    top = torch.topk(logp_v, min(logprobs, len(logp_v)))
    return Token(token, float(logp_v[token]), tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True)))
