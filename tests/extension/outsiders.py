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
