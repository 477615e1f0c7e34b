"""BM25: how well each of several texts matches the words of a question.

    score(D) = sum over words q of idf(q) f(q, D) (k + 1) / (f(q, D) + k (1 - b + b |D| / mean |D|))
    idf(q)   = ln(1 + (N - n(q) + 1/2) / (n(q) + 1/2))

f(q, D) is how often a word stands in a text of |D| words, n(q) in how many of the N texts it stands.

Source: Robertson & Zaragoza 2009, Found. Trends Inf. Retr. 3, 333-389; the 1 in idf, k and b as in Lucene.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

K, B = 1.2, 0.75
SINGLE = "\u3040-\u30ff\u3400-\u9fff"


def scores(question: str, texts: Sequence[str]) -> list[float]:
    """One score for each text."""
    counts = [Counter(_words(text)) for text in texts]
    mean = sum(count.total() for count in counts) / len(texts)
    totals = [0.0] * len(texts)
    for word in set(_words(question)):
        among = sum(word in count for count in counts)
        idf = math.log(1 + (len(texts) - among + 0.5) / (among + 0.5))
        for place, count in enumerate(counts):
            relative = count.total() / mean if mean else 1.0
            totals[place] += idf * count[word] * (K + 1) / (count[word] + K * (1 - B + B * relative))
    return totals


def _words(text: str) -> list[str]:
    """Of letters and digits; of Chinese and Japanese, which put no spaces between words, single characters."""
    return re.findall(rf"[{SINGLE}]|[^\W{SINGLE}]+", text.lower())
