"""Passages that are searched for, by BM25."""

from __future__ import annotations

import hashlib
import heapq
import json
import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ropewalk.hf.checkpoint.tokens import token_ids
from ropewalk.measure.metrics.intervals import FEW_PROJECTS
from ropewalk.texts.corpora import CODE, Document, projects_in_turn
from ropewalk.texts.installed_texts import PYTHON

# BM25: how well each of several texts matches the words of a question.
#
#     score(D) = sum over words q of idf(q) f(q, D) (k + 1) / (f(q, D) + k (1 - b + b |D| / mean |D|))
#     idf(q)   = ln(1 + (N - n(q) + 1/2) / (n(q) + 1/2))
#
# f(q, D) is how often a word stands in a text of |D| words, n(q) in how many of the N texts it stands.
#
# Source: Robertson & Zaragoza 2009, Found. Trends Inf. Retr. 3, 333-389; the 1 in idf, k and b as in Lucene.


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


# The texts of one length that a corpus has: documents that are long enough, and shorter ones joined.
#
# The documents of a series, as the files of a project, are joined in the order of their names, as a repository is read.
# A source is preceded by a comment with its path. A series gives one text after the other until its documents are used
# up: no document is in two texts. Documents that are long enough by themselves are read by themselves, and come first.
# Only where they are of too few projects for an interval over projects, joined texts of others come between them.


MOST_TOKENISED, MOST_READ = 4096, 2**18  # documents that are tokenised, and read, in the search for long ones
KEPT_BYTES = 2**29  # bytes of shorter documents that are kept, to be joined
DOCUMENTS_KEPT = 64  # documents without a series that are kept, the longest, to know which lengths there are
USUAL_BYTES_PER_TOKEN = 3.0  # bytes of a token of text, from which the length of a joined text is guessed at first
MEASURED_DOCUMENTS, MEASURED_CHARACTERS = 8, 2**13  # documents, and characters of each, from which that is measured


class Passage(NamedTuple):
    """The beginning of a text of the corpus, its project, and the marks of the documents that were joined."""

    project: str
    ids: Tensor
    joined: tuple[str, ...] = ()


class PassageSearch:
    """The passages of one length of some documents; these are read as far as needed."""

    def __init__(
        self,
        documents: Iterable[Document],
        tokenizer: PreTrainedTokenizerBase,
        longest: int,
        without: frozenset[str] = frozenset(),
    ) -> None:
        self.read = self.tokenised = self.found = 0  # documents so far, and those that are long enough by themselves
        self.left = False  # whether there are others that were not read
        self._documents, self._tokenizer, self._longest, self._without = documents, tokenizer, longest, without
        self._series, self._bytes = defaultdict[str, list[Document]](list), 0  # shorter documents
        self._rows: list[tuple[int, int, Document]] = []  # the longest of those that have no series

    def __iter__(self) -> Iterator[Passage]:
        alone, first = self._alone(), dict[str, list[Passage]]()
        while len(first) < FEW_PROJECTS and (passage := next(alone, None)):
            first.setdefault(passage.project, []).append(passage)
        waiting, taken = dict[str, Iterator[Passage]](), Counter[str]()
        if len(first) == FEW_PROJECTS:
            begun = chain.from_iterable(first.values())
            for project, passage in projects_in_turn((one.project, one) for one in chain(begun, alone)):
                taken[project] += 1
                yield passage
        else:
            waiting = {project: iter(passages) for project, passages in first.items()}
        for series, documents in self._series.items():
            if len(documents) > 1:
                waiting[series] = chain(waiting.get(series, ()), self._joined(documents))
        yield from _fewest_first(waiting, taken)

    def longest_of(self, count: int) -> int:
        """The longest shorter length of which there are so many passages; 0 if there is none. All must have been read.

        It is guessed by bytes and then tried.
        """
        rows = (row for _, _, row in sorted(self._rows, reverse=True))
        documents = [*chain.from_iterable(self._series.values()), *rows]
        wanted = max(0, count - self.found)
        length = min(self._longest - 1, _guess(documents, self._tokenizer, wanted))
        while length and not self._has(documents, length, wanted):
            length = length * 7 // 8
        return length

    def _has(self, documents: Iterable[Document], length: int, count: int) -> bool:
        passages = PassageSearch(documents, self._tokenizer, length, self._without)
        return sum(1 for _ in islice(passages, count)) == count

    def _alone(self) -> Iterator[Passage]:
        """Those with enough bytes are tokenised: a token is at least one, of which a character may have four.

        (A tokenizer that lengthens text before it splits it may make more of a few bytes; that is passed over.)
        """
        for document in self._documents:
            if self.tokenised == MOST_TOKENISED or self.read == MOST_READ:
                self.left = True
                return
            self.read += 1
            size = _size(document)
            if size < self._longest:
                self._keep(document, size)
                continue
            self.tokenised += 1
            ids = token_ids(self._tokenizer, document.text, self._longest)
            if len(ids) < self._longest:
                self._keep(document, size)
            elif not self._without or mark(json.dumps(ids.tolist())) not in self._without:
                self.found += 1
                yield Passage(document.project, ids)

    def _keep(self, document: Document, size: int) -> None:
        """To be joined, and to know which shorter lengths there are."""
        if not document.series:
            push = heapq.heappush if len(self._rows) < DOCUMENTS_KEPT else heapq.heappushpop
            push(self._rows, (size, -self.read, document))
        elif self._bytes < KEPT_BYTES and not (self._without and mark(document.text) in self._without):
            self._bytes += size
            self._series[document.series].append(document)

    def _joined(self, documents: Sequence[Document]) -> Iterator[Passage]:
        """Tokenised when they are probably long enough, and at their end where they may be."""
        waiting, size, per_token = list[Document](), 0, USUAL_BYTES_PER_TOKEN
        for number, document in enumerate(sorted(documents, key=_path), 1):
            waiting.append(document)
            size += _size(document)
            if size < self._longest * (per_token if number < len(documents) else 1):
                continue
            ids = token_ids(self._tokenizer, "".join(map(_add_path, waiting)), self._longest)
            if len(ids) == self._longest:
                yield Passage(_joined_name(waiting), ids, tuple(mark(one.text) for one in waiting))
                waiting, size = [], 0
            else:
                per_token = size / len(ids)


def mark(text: str) -> str:
    """A short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fewest_first(waiting: dict[str, Iterator[Passage]], taken: Counter[str]) -> Iterator[Passage]:
    """Always one of the project or series of which the fewest were taken, until all have ended."""
    while waiting:
        least = min(waiting, key=lambda series: taken[series])
        passage = next(waiting[least], None)
        if passage is None:
            del waiting[least]
        else:
            taken[least] += 1
            yield passage


def _guess(documents: Sequence[Document], tokenizer: PreTrainedTokenizerBase, count: int) -> int:
    """The longest length of which there are so many, as far as bytes tell."""
    some = [
        document.text[:MEASURED_CHARACTERS] for document in documents[:: -(-len(documents) // MEASURED_DOCUMENTS) or 1]
    ]
    tokens = sum(len(token_ids(tokenizer, text)) for text in some)
    per_token = sum(len(text.encode()) for text in some) / max(1, tokens)
    series = defaultdict[str, list[int]](list)
    for document in documents:
        series[document.series or document.name].append(_size(document))

    def too_long(length: int) -> bool:
        need = length * per_token
        rest = (sum(size for size in sizes if size < need) for sizes in series.values())
        alone = sum(size >= need for sizes in series.values() for size in sizes)
        return alone + sum(int(size / need) for size in rest) < count

    return bisect_left(range(1, 1 + sum(map(sum, series.values()))), True, key=too_long)


def _size(document: Document) -> int:
    return len(document.text.encode())


def _path(document: Document) -> list[str]:
    return document.name.split("/")


def _add_path(document: Document) -> str:
    """The text of a document, with its path if it is a source, so that it ends in an empty line."""
    kind, _, inside = document.name.partition("/")
    head = f"# {inside if kind in PYTHON else document.name}\n" if document.name.endswith(CODE) else ""
    return head + document.text + ("\n" if document.text.endswith("\n") else "\n\n")


def _joined_name(documents: Sequence[Document]) -> str:
    """The project of a joined text; of several, the first and the last: no other text has any of them."""
    first, last = documents[0].project, documents[-1].project
    return first if first == last else f"{first} to {last}"
