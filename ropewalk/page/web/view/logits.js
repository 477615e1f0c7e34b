// The logits: their decay with distance, and the factor of each row.
"use strict";
Ropewalk.logits = (() => {
  const { byId, make, number, whole, tokens } = Ropewalk.dom;
  const { show, caption, multiples, powersOf } = Ropewalk.charts;
  const { t } = Ropewalk.words;
  const BINS = 120,
    SAMPLES = 12,
    POINTS = 200;

  function draw(sides) {
    drawDecay(sides);
    drawScale(sides);
  }

  // Distances from 1 to the length in bins of equal ratio; a few of each are taken.
  function bins(length) {
    const ends = new Set(),
      all = [];
    for (let bin = 0; bin <= BINS; bin++) ends.add(Math.round(length ** (bin / BINS)));
    const sorted = [...ends].sort((one, other) => one - other);
    for (let bin = 0; bin + 1 < sorted.length; bin++) {
      const [start, stop] = [sorted[bin], sorted[bin + 1]],
        count = Math.min(stop - start, SAMPLES);
      all.push(Array.from({ length: count }, (_, n) => start + Math.floor(((n + 0.5) * (stop - start)) / count)));
    }
    return all;
  }

  function drawDecay({ a, b }) {
    const groups = bins(a.view.length),
      figure = byId("decay");
    const curve = ({ view }) => {
      const values = groups.map((group) =>
        group.map((s) => Ropewalk.diagnostics.decayAt(view, s)).filter(Number.isFinite),
      );
      const of = (summary) => values.map((group) => (group.length ? summary(group) : null));
      return [
        of((group) => group.reduce((sum, one) => sum + one, 0) / group.length),
        of((group) => Math.max(...group)),
        of((group) => Math.min(...group)),
      ];
    };
    const [one, other] = [curve(a), curve(b)],
      xs = groups.map((group) => group[Math.floor(group.length / 2)]);
    const learns = [a, b].some(({ view }) => Object.keys(view.weights).length),
      layered = a.layered || b.layered;
    const words = [t("decay_band"), learns && t("decay_learned"), layered && t("a_layer")].filter(Boolean).join(" ");
    caption(figure, make("b", {}, t("decay_title")), words, true);
    const faint = (accent) => ({ accent, width: 0 });
    show(figure, {
      title: `${t("decay_title")}. ${t("keyboard")}`,
      data: [xs, one[0], other[0], one[1], one[2], other[1], other[2]],
      series: [{ accent: "a" }, { accent: "b", dash: [6, 3] }, ...["a", "a", "b", "b"].map(faint)],
      bands: [band([3, 4], "a"), band([5, 6], "b")],
      x: { label: t("distance_axis"), log: true, tick: tokens, range: [1, a.view.length], splits: powersOf(4) },
      y: { label: t("logit_axis") },
      marks: [{ x: a.view.facts.trained_len, label: t("trained_mark") }],
      describe: (index) => {
        const shown = (value) => (value === null ? t("unseen_value") : number(value));
        return t("distance_readout", { x: whole(xs[index]), a: shown(one[0][index]), b: shown(other[0][index]) });
      },
    });
  }

  const band = (series, accent) => ({
    series,
    fill: () => `color-mix(in srgb, ${Ropewalk.dom.colour(accent)} 16%, transparent)`,
  });

  function drawScale({ a, b }) {
    const length = a.view.length,
      figure = byId("scale");
    const xs = Array.from({ length: POINTS }, (_, n) => Math.round((n * (length - 1)) / (POINTS - 1)));
    const line = ({ view }) => xs.map((x) => Ropewalk.diagnostics.scaleAt(view, x));
    const data = [xs, line(a), line(b)],
      most = Math.max(1.2, ...data[1], ...data[2]);
    caption(figure, make("b", {}, t("scale_title")), "", true);
    show(figure, {
      title: `${t("scale_title")}. ${t("keyboard")}`,
      data,
      series: [{ accent: "a" }, { accent: "b", dash: [6, 3] }],
      x: { label: t("position_axis"), tick: tokens, range: [0, length], splits: multiples },
      y: { label: t("factor_axis"), range: [Math.min(0.9, ...data[1], ...data[2]), 1.05 * most] },
      marks: [{ x: a.view.facts.trained_len, label: t("trained_mark") }],
      describe: (index) =>
        t("position_readout", { x: whole(xs[index]), a: number(data[1][index]), b: number(data[2][index]) }),
    });
  }

  return { draw };
})();
