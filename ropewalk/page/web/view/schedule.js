// The schedule: how far each pair has rotated at the end of the text, and what of it never occurred in training.
"use strict";
Ropewalk.schedule = (() => {
  const { byId, make, number, colour, whole } = Ropewalk.dom;
  const { show, caption, powersOf } = Ropewalk.charts;
  const { t } = Ropewalk.words;
  const FLOOR = 1e-4; // rotations: the least that the charts show

  function draw(sides) {
    const pairs = { a: pairsOf(sides.a), b: pairsOf(sides.b) };
    const all = [...pairs.a, ...pairs.b].flatMap((pair) => [pair.trained, pair.asked]).filter((turns) => turns > 0);
    const least = Math.max(Math.min(...all, 1) / 2, FLOOR),
      most = Math.max(...all, 1) * 2;
    for (const side of ["a", "b"]) drawAngles(side, pairs[side], [least, most]);
    drawSlowed(pairs);
  }

  // Of every pair, fastest first: rotations in training, and in the last row of the text.
  function pairsOf({ pairs, ground }) {
    return ground.turns.map((trained, pair) => ({
      pair,
      trained,
      theta: pairs.theta[pair],
      slowedBy: pairs.slowed[pair],
      asked: pairs.asked[pair],
      unseen: pairs.unseen.includes(pair),
    }));
  }

  function drawAngles(side, pairs, range) {
    const figure = byId(`angles-${side}`),
      unseen = pairs.filter((pair) => pair.unseen).length;
    const rotates = pairs.some((pair) => pair.theta);
    const words = !rotates
      ? t("no_rotation")
      : unseen
        ? t("some_new", { count: unseen, pairs: pairs.length })
        : t("none_new");
    figure.className = `cell side-${side}`;
    caption(
      figure,
      [make("b", { class: "badge" }, side.toUpperCase()), " ", make("b", {}, words)],
      legend(side, unseen),
    );
    const floored = (turns) => (turns > 0 ? Math.max(turns, range[0]) : null);
    show(figure, {
      title: `${side.toUpperCase()}: ${t("schedule")}. ${words}. ${t("keyboard")}`,
      data: [
        pairs.map(({ pair }) => pair),
        pairs.map(({ trained }) => floored(trained)),
        pairs.map(({ asked }) => floored(asked)),
      ],
      series: [
        { accent: "known", hidden: true },
        { accent: side, hidden: true },
      ],
      x: { label: t("pair_axis"), tick: whole, range: [-1, pairs.length] },
      y: { label: t("turns_axis"), log: true, range: [...range], splits: powersOf(10) },
      marks: [{ y: 1 }],
      sync: "pairs",
      draw: (chart) => drawSticks(chart, pairs, side),
      describe: (index) => describe(pairs[index]),
    });
  }

  function legend(side, unseen) {
    const item = (kind, name, word) => {
      const mark = make("i", { class: kind });
      mark.style.setProperty("--mark", `var(--${name})`);
      return make("span", { class: "legend" }, mark, t(word));
    };
    return make(
      "span",
      {},
      item("block", "known", "legend_trained"),
      item("dot", side, "legend_now"),
      unseen ? item("block", "new", "legend_angle") : "",
      item("dashes", "soft", "legend_turn"),
    );
  }

  // Grey up to the angle of training, a dot at the angle of this text, and red between them where that is new.
  function drawSticks(chart, pairs, side) {
    const { ctx, bbox } = chart,
      ratio = devicePixelRatio || 1,
      bottom = bbox.top + bbox.height;
    const thick = Math.max(Math.min(bbox.width / pairs.length - ratio, 6 * ratio), ratio);
    const y = (turns) => Math.min(chart.valToPos(Math.max(turns, chart.scales.y.min), "y", true), bottom);
    const stick = (pair, from, to, name) => {
      ctx.fillStyle = colour(name);
      ctx.fillRect(chart.valToPos(pair, "x", true) - thick / 2, to, thick, from - to);
    };
    ctx.save();
    for (const { pair, trained, asked, unseen } of pairs) {
      stick(pair, bottom, y(trained), "known");
      if (unseen) stick(pair, y(trained), y(Math.min(asked, 1)), "new");
      if (!asked) continue;
      ctx.fillStyle = colour(unseen ? "new" : side);
      ctx.beginPath();
      ctx.arc(chart.valToPos(pair, "x", true), y(asked), Math.max(thick * 0.55, 2 * ratio), 0, 2 * Math.PI);
      ctx.fill();
    }
    ctx.restore();
  }

  function describe({ pair, theta, trained, asked }) {
    const wave = theta ? number((2 * Math.PI) / theta) : t("still");
    return t("pair_readout", { pair, wave, trained: number(trained), asked: number(asked) });
  }

  function drawSlowed(pairs) {
    const times = (side) => pairs[side].map(({ slowedBy }) => slowedBy);
    const data = [pairs.a.map(({ pair }) => pair), times("a"), pairs.a.map((_, index) => times("b")[index] ?? null)];
    const most = Math.max(2, ...data[1].filter(Boolean), ...data[2].filter(Boolean));
    caption(byId("slowed"), make("b", {}, t("slowed_title")), "", true);
    show(byId("slowed"), {
      title: `${t("slowed_title")}. ${t("keyboard")}`,
      data,
      series: [{ accent: "a" }, { accent: "b", dash: [6, 3] }],
      x: { label: t("pair_axis"), tick: whole, range: [-1, pairs.a.length] },
      y: { label: t("slowed_axis"), log: true, range: [0.9, 1.15 * most], splits: powersOf(2) },
      sync: "pairs",
      describe: (index) => {
        const shown = (side) => (data[side][index] === null ? "∞" : number(data[side][index]));
        return t("slowed_readout", { pair: index, a: shown(1), b: shown(2) });
      },
    });
  }

  return { draw };
})();
