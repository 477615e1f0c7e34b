"""A pool of pages and requests that grow, each new token compared with the oracle, in an engine's environment too."""

import torch

from ropewalk import Facts, parse, reference_attention
from ropewalk.attention.paged import PagedBatch, PagedLayer
from ropewalk.attention.paged.rows import PageStages
from ropewalk.attention.problem import layer_terms

FACTS = Facts(trained_len=32, head_dim=8, heads=4, kv_heads=2)

LINES = [
    "rope",
    "log_n",
    "yarn:factor=4+log_n",
    "window:window=12",
    "streaming:window=12",
    "rerope:window=8",
    "leaky_rerope:window=8,leak=4",
    "self_extend:window=8,group=4",
    "dual_chunk:chunk=16,local=4",
    "string:shift=10,local=4",
    "self_logistic:window=8,capacity=5,rate=0.3",
    "lampe:head=6,tail=3,length=60,mapped=20",
    "lm_infinite:window=12",
    "bca:block=12",
    "dynamic_yarn",
    "dynamic_ntk+rerope:window=8",
    "alibi",
    "rerope:window=8+alibi",
    "nope",
]


def line(text):
    return parse(text, trained_len=FACTS.trained_len, target_len=4 * FACTS.trained_len)


class Server:
    """A pool of pages, and requests that grow; each token is compared with the oracle over the request's whole text."""

    def __init__(self, extension, facts=FACTS, *, size=4, pages=1000, seed=0, dtype=torch.float64, weights=None):
        self.generator = torch.Generator().manual_seed(seed)
        self.extension, self.facts, self.size, self.weights = extension, facts, size, weights
        self.layer = PagedLayer(layer_terms(extension, facts, weights))
        # What is not stored yet may be any number.
        self.pages = torch.full((pages, facts.groups, self.layer.lanes, size, facts.head_dim), 1e30, dtype=dtype)
        self.stages = PageStages(pages) if self.layer.has_stages else None
        self.free = torch.randperm(pages, generator=self.generator).tolist()
        self.texts, self.tables, self.lengths = [], [], []

    def add(self, length):
        groups, d = self.facts.groups, self.facts.head_dim
        sizes = [(self.facts.heads, d), (groups, d), (groups, d)]
        text = [torch.randn(length, *size, generator=self.generator, dtype=self.pages.dtype) for size in sizes]
        self.texts.append(text)
        self.tables.append([])
        self.lengths.append(0)

    def step(self, counts):
        """Read the next tokens of every request; returns their outputs by request."""
        starts, slots = [0], []
        for n, count in enumerate(counts):
            while len(self.tables[n]) * self.size < self.lengths[n] + count:
                self.tables[n].append(self.free.pop())
            places = range(self.lengths[n], self.lengths[n] + count)
            slots += [self.tables[n][place // self.size] * self.size + place % self.size for place in places]
            starts.append(starts[-1] + count)
            self.lengths[n] += count
        widest = max(len(table) for table in self.tables)
        table = torch.tensor([table + [0] * (widest - len(table)) for table in self.tables])
        batch = PagedBatch(starts, self.lengths, table, torch.tensor(slots, dtype=torch.long), size=self.size)
        new = zip(*(self.new(n, count) for n, count in enumerate(counts)), strict=True)
        out = self.layer.read(self.pages, *(torch.cat(parts) for parts in new), batch, self.stages)
        return torch.split(out, counts)

    def new(self, n, count):
        return [part[self.lengths[n] - count : self.lengths[n]] for part in self.texts[n]]

    def expected(self, n, count):
        q, k, v = (part[: self.lengths[n]].transpose(0, 1)[None] for part in self.texts[n])
        q = q[:, :, self.lengths[n] - count :]
        out = reference_attention(q, k, v, self.extension, self.facts, weights=self.weights)
        return out[0].transpose(0, 1)

    def check(self, counts, tolerance=1e-11):
        for n, (out, count) in enumerate(zip(self.step(counts), counts, strict=True)):
            if count:
                torch.testing.assert_close(out.double(), self.expected(n, count), rtol=0, atol=tolerance)
