"""Lines to be drawn: calm ones, and one that breaks."""

from ropewalk.measure.report.drawing.build import line_chart, trained_mark
from ropewalk.measure.report.drawing.charts import Series

X = tuple(float(x) for x in range(0, 1025, 64))


CALM = Series("calm", 0, X, tuple(-0.1 + 0.0001 * x for x in X), tuple(-0.2 for _ in X), tuple(0.05 for _ in X))


WILD = Series("wild", 1, X, tuple(0.01 * x for x in X), broken=True)


def lines(*series, **more):
    how = {"across": "tokens", "up": "loss", "marks": [trained_mark(512)], "to": 1024, "signed": True, **more}
    return line_chart(series, **how)
