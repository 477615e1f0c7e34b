"""A text read piece by piece and written on, with whatever model: the scripts inside the engines do it as we do."""

import numpy

CHUNK = 512  # tokens: their log-probabilities over 262,144 words are half a gigabyte


def read_and_write(step, ids, count):
    """The log-probability of each token but the first; the `count` likeliest tokens that follow, one after the other;
    and the log-probabilities among which each of these was chosen.

    `step` reads tokens behind those before, and answers with logits [tokens, words].
    """
    said = []
    for start in range(0, len(ids), CHUNK):
        part, following = ids[start : start + CHUNK], ids[start + 1 : start + CHUNK + 1]
        rows = step(part, start)
        said.append(_normal(rows[: len(following)])[numpy.arange(len(following)), following])
    chosen, among = [], []
    while True:
        among.append(_normal(rows[-1:])[0])
        chosen.append(int(among[-1].argmax()))
        if len(chosen) == count:
            return numpy.concatenate(said), chosen, numpy.stack(among)
        rows = step(chosen[-1:], len(ids) + len(chosen) - 1)


def _normal(logits):
    """Log-probabilities, by sums in float64."""
    logits = logits - logits.max(-1, keepdims=True)
    return logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True, dtype=numpy.float64)).astype(numpy.float32)
