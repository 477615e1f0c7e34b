"""Documents cut into passages of one length, for training rows with one text each."""

from __future__ import annotations

import numpy as np

from ropewalk.errors import DoesNotFit
from ropewalk.train.data.tokens import Numbers, TokenizedCorpus


class Passages(TokenizedCorpus):
    """The passages of a corpus as documents; shorter ends are left out."""

    def __init__(self, corpus: TokenizedCorpus, length: int) -> None:
        self._corpus, self._length = corpus, length
        self._counts = corpus.lengths // length
        self._ends = np.cumsum(self._counts)
        if not len(self._ends) or not self._ends[-1]:
            longest = int(corpus.lengths.max(initial=0))
            raise DoesNotFit("corpus", f"one with a document of {length} tokens", f"at most {longest}")
        self.lengths = np.full(int(self._ends[-1]), length, dtype=np.int64)

    def __getitem__(self, index: int) -> Numbers:
        nth = int(np.searchsorted(self._ends, index, side="right"))
        first = (index - int(self._ends[nth] - self._counts[nth])) * self._length
        return self._corpus[nth][first : first + self._length]
