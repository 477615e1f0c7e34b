"""Methods of somebody else: their code, and packages that offer them without being installed."""

import sys
from contextlib import contextmanager

HALF = '''"""Half: every pair is slowed by the root of the factor.

    theta'_i = theta_i / sqrt(factor)

Source: an experiment.
"""

from dataclasses import dataclass

from ropewalk.methods.frequencies.frequencies import Frequencies, trained_theta, without_decay
from ropewalk.methods.spec import Factor


@dataclass(frozen=True, kw_only=True)
class Half(Frequencies):
    name = "half"
    factor: Factor

    def table(self, facts, length):
        return without_decay(trained_theta(facts) / self.factor ** 0.5)
'''


def method_file(folder, code=HALF, name="my.py"):
    """A file of methods, and its path."""
    path = folder / name
    path.write_text(code)
    return str(path)


@contextmanager
def installed(place, monkeypatch):
    """Packages on the path for the length of a block. What is called writes one, and returns the name of its module."""
    written = []

    def install(points, code=HALF, title="my-package", more=""):
        module = f"{title.replace('-', '_')}_{len(written)}"
        info = place / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        (place / f"{module}.py").write_text(code + more)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {title}\nVersion: 1.0\n")
        lines = "".join(f"{name} = {module}:{target}\n" for name, target in points.items())
        (info / "entry_points.txt").write_text(f"[ropewalk.methods]\n{lines}")
        monkeypatch.syspath_prepend(str(place))
        written.append(module)
        return module

    yield install
    for module in written:
        sys.modules.pop(module, None)


# A package, or a file, with a schedule, a reach and a bias that learns; each class has its page.
THREE = '''"""Three methods."""

from dataclasses import dataclass
from typing import Annotated

import torch

from ropewalk.methods.biases.bias import Bias, per_head
from ropewalk.methods.frequencies.frequencies import Frequencies, trained_theta, without_decay
from ropewalk.methods.reach.reach import Reach, Span, after, before, itself, last
from ropewalk.methods.record import AT_LEAST_ONE
from ropewalk.methods.spec import Factor


@dataclass(frozen=True, kw_only=True)
class Slope(Frequencies):
    """Slope: the slowest pair by the whole factor, the fastest not at all.

        theta'_i = theta_i / (1 + (factor - 1) i / (d/2 - 1))

    Source: a test.
    """

    name = "slope"
    factor: Factor

    def table(self, facts, length):
        theta = trained_theta(facts)
        share = torch.linspace(0, 1, len(theta), dtype=torch.float64)
        return without_decay(theta / (1 + (self.factor - 1) * share))


@dataclass(frozen=True, kw_only=True)
class Half(Reach):
    """Half-way: beyond a window every key appears half as much farther away as it is."""

    name = "halfway"
    window: Annotated[int, AT_LEAST_ONE, "keys that keep their distance"] = 8

    def spans(self):
        far = Span(start=torch.zeros_like, stop=before(self.window), q_at=self._q_at, k_at=lambda j: j.double() / 2)
        return last(self.window), far

    def _q_at(self, i):
        return i.double() / 2 + self.window / 2


@dataclass(frozen=True, kw_only=True)
class Pull(Bias):
    """Pull: a head learns how much nearer keys weigh."""

    name = "pull"

    def weights(self, facts, generator=None):
        return {"strength": torch.full((facts.heads,), 0.05, dtype=torch.float64)}

    def bias(self, distance, query, facts, weights):
        return -per_head(weights["strength"], distance) * torch.log1p(distance.double())
'''
OF_THREE = {"slope": "Slope", "halfway": "Half", "pull": "Pull"}
