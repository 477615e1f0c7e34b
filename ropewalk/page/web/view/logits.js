// The logits: their decay with distance, and the factor of each row.
"use strict";
Ropewalk.logits = (() => {
  const { byId, make, number, whole, tokens } = Ropewalk.dom;
  const { show, caption, multiples, powersOf } = Ropewalk.charts;
  const { t } = Ropewalk.words;
  function draw(sides) {
    drawDecay(sides);
    drawScale(sides);
  }

  function drawDecay({ a, b }) {
    const figure = byId("decay"),
      xs = a.distances;
    const learns = a.learned || b.learned,
      layered = [a, b].some(({ made }) => made.length > 1);
    const words = [t("decay_band"), learns && t("decay_learned"), layered && t("a_layer")].filter(Boolean).join(" ");
    caption(figure, make("b", {}, t("decay_title")), words, true);
    const faint = (accent) => ({ accent, width: 0 });
    show(figure, {
      title: `${t("decay_title")}. ${t("keyboard")}`,
      data: [xs, a.decay.mean, b.decay.mean, ...[a, b].flatMap(({ decay }) => [decay.most, decay.least])],
      series: [{ accent: "a" }, { accent: "b", dash: [6, 3] }, ...["a", "a", "b", "b"].map(faint)],
      bands: [band([3, 4], "a"), band([5, 6], "b")],
      x: { label: t("distance_axis"), log: true, tick: tokens, range: [1, a.length], splits: powersOf(4) },
      y: { label: t("logit_axis") },
      marks: [{ x: a.ground.trained_len, label: t("trained_mark") }],
      describe: (index) => {
        const shown = (value) => (value === null ? t("unseen_value") : number(value));
        return t("distance_readout", { x: whole(xs[index]), a: shown(a.decay.mean[index]), b: shown(b.decay.mean[index]) });
      },
    });
  }

  const band = (series, accent) => ({
    series,
    fill: () => `color-mix(in srgb, ${Ropewalk.dom.colour(accent)} 16%, transparent)`,
  });

  function drawScale({ a, b }) {
    const { length, places: xs } = a,
      figure = byId("scale");
    const line = ({ scale }) => (Array.isArray(scale) ? scale : xs.map(() => scale));
    const data = [xs, line(a), line(b)],
      most = Math.max(1.2, ...data[1], ...data[2]);
    caption(figure, make("b", {}, t("scale_title")), "", true);
    show(figure, {
      title: `${t("scale_title")}. ${t("keyboard")}`,
      data,
      series: [{ accent: "a" }, { accent: "b", dash: [6, 3] }],
      x: { label: t("position_axis"), tick: tokens, range: [0, length], splits: multiples },
      y: { label: t("factor_axis"), range: [Math.min(0.9, ...data[1], ...data[2]), 1.05 * most] },
      marks: [{ x: a.ground.trained_len, label: t("trained_mark") }],
      describe: (index) =>
        t("position_readout", { x: whole(xs[index]), a: number(data[1][index]), b: number(data[2][index]) }),
    });
  }

  return { draw };
})();
