// Charts by uPlot: one way to draw axes, marks, cursors and their readout for all panels.
"use strict";
Ropewalk.charts = (() => {
  const { make, fill, colour, number } = Ropewalk.dom;
  const FONT = "12px system-ui, sans-serif",
    BESIDE = 44,
    BELOW = 22; // of axes, in pixels
  const NAME = 14; // of a mark's name above the plot, in pixels
  const isNamed = ({ x, label }) => x !== undefined && label;
  const drawn = new Map(); // by place: the chart, so that it can be removed and sized

  // show(figure, {data, series, x, y, marks, describe, draw}); axes are {label, log, tick, range}.
  function show(figure, spec) {
    const place = figure.querySelector(".chart"),
      kept = drawn.get(figure);
    const focused = kept?.root.contains(document.activeElement),
      index = kept?.cursor.idx;
    kept?.destroy();
    const chart = new uPlot(options(figure, place, spec), spec.data, place);
    drawn.set(figure, chart);
    accessible(figure, chart, spec);
    if (focused) {
      chart.over.focus();
      move(chart, index ?? 0);
    }
  }

  function options(figure, place, { series, x, y, marks = [], bands, draw, describe, sync }) {
    const readout = figure.querySelector(".readout"),
      upright = marks.filter(isNamed).toSorted((one, other) => other.x - one.x);
    readout.textContent = hint(figure);
    return {
      ...sizeOf(place),
      padding: [8 + NAME * upright.length, 10, 0, 0],
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, y: false, points: { size: 7 }, ...(sync && { sync: { key: sync } }) },
      scales: { x: scale(x), y: scale(y) },
      axes: [axis(x, "x"), axis(y, "y")],
      series: [{}, ...series.map(line)],
      bands,
      hooks: {
        drawClear: [(chart) => draw?.(chart)],
        draw: [(chart) => marks.forEach((mark) => drawMark(chart, mark, upright.indexOf(mark)))],
        setCursor: [
          (chart) =>
            (readout.textContent = (chart.cursor.idx ?? null) === null ? hint(figure) : describe(chart.cursor.idx)),
        ],
      },
    };
  }

  // What stands under a figure before anything is pointed at: once in each row.
  const hint = (figure) => (figure.previousElementSibling ? "" : Ropewalk.words.t("hint"));
  const sizeOf = (place) => ({ width: Math.max(place.clientWidth, 120), height: place.clientHeight || 250 });
  const scale = ({ log, range }) => ({ time: false, distr: log ? 3 : 1, log: 10, ...(range && { range }) });
  const line = ({ accent, width = 1.75, dash, hidden, stepped }) => ({
    stroke: () => colour(accent),
    width,
    dash,
    spanGaps: false,
    points: { show: false },
    ...(hidden && { paths: () => null }),
    ...(stepped && { paths: uPlot.paths.stepped({ align: 1 }) }),
  });

  function axis({ label, log, tick = number, splits }, side) {
    return {
      label,
      labelFont: FONT,
      font: FONT,
      labelSize: 18,
      labelGap: side === "x" ? 0 : 2,
      size: side === "x" ? BELOW : BESIDE,
      gap: 4,
      stroke: () => colour("soft"),
      grid: { stroke: () => colour("faint"), width: 1 },
      ticks: { stroke: () => colour("line"), width: 1, size: 4 },
      values: (_, all) => all.map((value) => (value === null ? "" : tick(value))),
      ...(log && { filter: (_, shown) => shown }),
      ...(splits && {
        splits: (chart, _, min, max) => splits(min, max, side === "x" ? chart.bbox.width : chart.bbox.height),
      }),
      space: side === "x" ? 55 : 28,
    };
  }

  // Where an axis has its numbers: lengths at multiples of a power of two, logarithms at powers of a number.
  function multiples(min, max) {
    const step = 2 ** Math.max(Math.ceil(Math.log2((max - min) / 5)), 0);
    return Array.from({ length: Math.floor(max / step) + 1 }, (_, index) => index * step);
  }

  const powersOf = (base) => (min, max) => {
    const all = Math.log(max / min) / Math.log(base),
      every = Math.max(Math.ceil(all / 7), 1);
    const first = Math.ceil(Math.log(min) / Math.log(base) - 1e-9),
      powers = [];
    for (let power = first; base ** power <= max * (1 + 1e-9); power++)
      if (power % every === 0) powers.push(base ** power);
    return powers;
  };

  // A dashed line across the chart with its name: {x or y, label}. Names of upright lines stand above the plot, where
  // no curve is, each in a row of its own, the leftmost on top: so no line crosses the name of another.
  function drawMark(chart, { x, y, label = "", accent = "soft" }, row) {
    const { ctx, bbox } = chart,
      at = x ?? y,
      way = x === undefined ? "y" : "x";
    const { min, max } = chart.scales[way];
    if (!(at >= min && at <= max)) return;
    const place = Math.round(chart.valToPos(at, way, true)),
      ratio = devicePixelRatio || 1,
      above = bbox.top - (5 + NAME * row) * ratio; // the foot of its name
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour(accent);
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.lineWidth = ratio;
    ctx.beginPath();
    if (way === "x") (ctx.moveTo(place, label ? above - 9 * ratio : bbox.top), ctx.lineTo(place, bbox.top + bbox.height));
    else (ctx.moveTo(bbox.left, place), ctx.lineTo(bbox.left + bbox.width, place));
    ctx.stroke();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    const room = bbox.left + bbox.width - place,
      width = ctx.measureText(label).width;
    ctx.textAlign = way === "x" && room > width + 8 * ratio ? "left" : "right";
    const side = ctx.textAlign === "left" ? 4 * ratio : -4 * ratio;
    if (!label) return ctx.restore();
    if (way === "x") ctx.fillText(label, place + side, above);
    else ctx.fillText(label, bbox.left + bbox.width - 3 * ratio, place - 4 * ratio);
    ctx.restore();
  }

  // A chart can be read with the keyboard: arrows move the cursor, and the readout says what is there.
  function accessible(figure, chart, { describe, title }) {
    const over = chart.over,
      readout = figure.querySelector(".readout");
    for (const [name, value] of [
      ["tabindex", "0"],
      ["role", "img"],
      ["aria-label", title],
    ])
      over.setAttribute(name, value);
    over.addEventListener("focus", () => readout.setAttribute("aria-live", "polite"));
    over.addEventListener("blur", () => readout.setAttribute("aria-live", "off"));
    over.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      move(chart, (chart.cursor.idx ?? 0) + by * (event.shiftKey ? 8 : 1));
    });
  }

  function move(chart, wanted) {
    const xs = chart.data[0],
      index = Math.min(Math.max(wanted, 0), xs.length - 1);
    chart.setCursor({ left: chart.valToPos(xs[index], "x"), top: chart.bbox.height / 4 }, true, true);
  }

  // The heading of a figure: lines of text, and a key of the two accents where both are drawn.
  function caption(figure, title, soft, both) {
    const key = both ? [make("span", { class: "key side-a" }, "A"), make("span", { class: "key side-b" }, "B")] : [];
    const words = [...[title].flat(), make("span", { class: "soft" }, ...key, soft ?? "")];
    fill(figure.querySelector("figcaption"), Ropewalk.share.button(figure), ...words);
  }

  addEventListener("resize", () => {
    for (const [figure, chart] of drawn) {
      const size = sizeOf(figure.querySelector(".chart"));
      if (size.width !== chart.width || size.height !== chart.height) chart.setSize(size);
    }
  });

  return { show, caption, hint, multiples, powersOf };
})();
