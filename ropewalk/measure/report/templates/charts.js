"use strict";
// Draws the charts of a report from the numbers that the page carries: records of `drawing/charts.py`, by figure.
// uPlot has the canvases, the axes and the pointer; the marks between the axes are drawn here.
const charts = (() => {
  const TOP = 40, BELOW = 24, ROOM = 4, BESIDE = 48; // pixels around plots
  const DISTR = { even: 1, log: 3, "signed log": 4 };
  const FONT = "12px system-ui, sans-serif";
  const CORNERS = [ // of markers; the first is a disc
    [], [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]], [[0, -1.2], [1.1, 0.8], [-1.1, 0.8]],
    [[0, -1.3], [1.1, 0], [0, 1.3], [-1.1, 0]], [[0, 1.2], [1.1, -0.8], [-1.1, -0.8]],
  ];
  const records = JSON.parse(document.getElementById("charts").textContent);
  const every = [...document.querySelectorAll(".chart")].map((place) => {
    return { place, figure: place.closest("figure"), chart: records[place.dataset.chart], plots: [] };
  });
  let chosen = null; // the key of the method that is shown alone

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const faded = (one) => chosen !== null && ![one.key, ...(one.also ?? [])].map(String).includes(chosen);
  const isLog = ({ figure }) => figure.querySelector(".switch")?.checked ?? false;
  const say = (place, text) => { place.textContent = text; };

  function written(value, { digits, signed }) {
    const text = value.toFixed(digits), nothing = !Number(text);
    return nothing ? (0).toFixed(digits) : (signed && value > 0 ? `+${text}` : text).replace("-", "\u2212");
  }

  function begin(one) {
    const { place, chart } = one, rows = chart.kind === "rows", narrow = matchMedia("(max-width: 640px)").matches;
    const step = place.querySelector(".legend li")?.clientHeight;
    for (const { u } of one.plots) u.destroy();
    one.plots = [...place.querySelectorAll(".canvas")].map((box, n) => {
      const panel = chart.panels[n], y = { ...((isLog(one) && panel.log) || panel.y) };
      if (rows && narrow) [y.low, y.high] = [y.low - 0.22, y.high - 0.22]; // names stand above their rows
      const hidden = { show: false }, plot = { panel, y };
      const scale = ({ low, high, kind }, more) => ({ time: false, distr: DISTR[kind], range: [low, high], ...more });
      plot.u = new uPlot({
        width: Math.max(box.clientWidth, 120),
        height: BELOW + (rows ? TOP + step * panel.series.length : chart.height),
        padding: [rows ? TOP : 18, 12, 0, rows ? 12 : 0],
        legend: hidden,
        cursor: { drag: { x: false }, x: chart.kind === "lines", y: false, points: hidden },
        scales: {
          x: scale(panel.x, { log: 2 }),
          y: scale(y, { asinh: chart.knee, dir: rows || panel.cells ? -1 : 1 }),
        },
        axes: [chart.bare ? hidden : axis(panel.x, "x", 48), rows || chart.bare ? hidden : axis(y, "y", 24)],
        series: [{}, { paths: () => null, points: hidden }],
        hooks: { draw: [() => paint(chart, plot)], setCursor: [() => read(one, plot, box)] },
      }, [[panel.x.low, panel.x.high], [y.low, y.high]], box);
      return plot;
    });
  }

  // Numbers stand where Python says, as far as there is room; else where uPlot puts them.
  function axis({ at, tokens, whole }, side, space) {
    const apart = (u, a, b) => Math.abs(u.valToPos(a, side) - u.valToPos(b, side)) >= space;
    const roomy = (u) => at.reduce((kept, value) => (kept.length && !apart(u, value, kept.at(-1)) ? kept : [...kept, value]), []);
    const words = (value) => {
      if (value === null) return "";
      return tokens && value >= 1024 ? `${value / 1024}k` : value.toLocaleString("en", { maximumSignificantDigits: 6 });
    };
    return {
      font: FONT, space, gap: 4, size: side === "x" ? BELOW : BESIDE, stroke: () => colour("soft"),
      grid: { stroke: () => colour("grid"), width: 1 }, ticks: { stroke: () => colour("grid"), width: 1, size: 4 },
      values: (_, values) => values.map(words),
      ...(at && { splits: roomy, filter: (_, values) => values }),
      ...(!at && tokens && { incrs: Array.from({ length: 31 }, (_, power) => 2 ** power) }),
      ...(whole && { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] }),
    };
  }

  // Marks.
  function penOf({ ctx, bbox, valToPos }, y) {
    const px = devicePixelRatio;
    const path = (places) => { ctx.beginPath(); for (const [left, top] of places) ctx.lineTo(left, top); };
    const stroke = (places) => { path(places); ctx.stroke(); };
    const fill = (places) => { path(places); ctx.fill(); };
    return {
      ctx, bbox, px, stroke, fill,
      x: (value) => valToPos(value, "x", true),
      y: (value) => valToPos(y.kind === "log" ? Math.max(value, y.low) : value, "y", true),
      line(width, dash = []) { ctx.lineWidth = width * px; ctx.setLineDash(dash.map((length) => length * px)); },
      dot(left, top, size, marker) {
        if (marker) return fill(CORNERS[marker].map(([right, down]) => [left + size * px * right, top + size * px * down]));
        ctx.beginPath();
        ctx.arc(left, top, size * px, 0, 2 * Math.PI);
        return ctx.fill();
      },
    };
  }

  function paint(chart, { u, panel, y }) {
    const pen = penOf(u, y), { ctx, bbox, px } = pen, rows = chart.kind === "rows";
    ctx.save();
    name(pen, panel.marks ?? [], rows);
    ctx.beginPath();
    ctx.rect(bbox.left - ROOM * px, bbox.top - ROOM * px, bbox.width + 2 * ROOM * px, bbox.height + 2 * ROOM * px);
    ctx.clip();
    if (panel.cells) cells(pen, panel, chart.shades);
    for (const one of [...(panel.series ?? [])].reverse()) {
      const alpha = faded(one) ? 0.18 : one.alpha;
      ctx.globalAlpha = alpha;
      ctx.strokeStyle = ctx.fillStyle = colour(one.colour);
      if (rows) row(pen, one, alpha);
      else if (one.look === "dots") one.x.forEach((x, n) => pen.dot(pen.x(x), pen.y(one.y[n]), one.sizes?.[n] ?? 3.2, one.marker));
      else line(pen, one, alpha, !chart.many || (chosen !== null && !faded(one)), y === panel.y || y.kind === panel.y.kind);
    }
    ctx.restore();
  }

  // A line with its interval, with gaps where a number is missing, and a triangle where it leaves the scale.
  function line(pen, one, alpha, banded, ends) {
    const stretches = [[]], dashed = one.look === "line" || one.look === "thin";
    one.y.forEach((value, n) => (value === null ? stretches.push([]) : stretches.at(-1).push(n)));
    for (const part of stretches) {
      const edge = (values) => part.map((n) => [pen.x(one.x[n]), pen.y(values[n] ?? one.y[n])]);
      pen.ctx.globalAlpha = alpha * 0.16;
      if (one.low && banded) pen.fill([...edge(one.high), ...edge(one.low).reverse()]);
      pen.ctx.globalAlpha = alpha;
      pen.line(one.look === "thin" ? 1 : one.look === "line" && one.key < 0 ? 3 : 2, dashed ? one.dash : []);
      pen.stroke(edge(one.y));
      if (one.look === "line" && one.x.length <= 12) for (const [x, y] of edge(one.y)) pen.dot(x, y, 3.5, one.marker);
    }
    if (!one.cut || !ends) return;
    const [place, side] = one.cut, top = side > 0 ? pen.bbox.top : pen.bbox.top + pen.bbox.height;
    pen.dot(pen.x(place), top + 5 * pen.px * side, 5, side > 0 ? 2 : 4);
  }

  // A dot with its interval, or a triangle at the edge that it is beyond.
  function row(pen, one, alpha) {
    const y = pen.y(one.y[0]), { px, bbox } = pen;
    pen.line(5);
    pen.ctx.lineCap = "round";
    pen.ctx.globalAlpha = alpha * 0.4;
    if (one.low) pen.stroke([[pen.x(one.low[0]), y], [pen.x(one.high[0]), y]]);
    pen.ctx.globalAlpha = alpha;
    if (!one.cut) return one.x[0] === null ? null : pen.dot(pen.x(one.x[0]), y, 5, one.marker);
    const side = one.cut[1], tip = side > 0 ? bbox.left + bbox.width : bbox.left;
    pen.fill([[tip, y], [tip - 9 * px * side, y - 6 * px], [tip - 9 * px * side, y + 6 * px]]);
  }

  function cells({ ctx, bbox, x, y }, panel, [low, high]) {
    const fill = (alpha, name, ...box) => { ctx.globalAlpha = alpha; ctx.fillStyle = colour(name); ctx.fillRect(...box); };
    fill(0.35, "grid", bbox.left, bbox.top, bbox.width, bbox.height);
    panel.cells.forEach((layer, number) => layer.forEach((value, n) => {
      const left = x(panel.edges[n]), top = y(number - 0.5), right = x(panel.edges[n + 1]), bottom = y(number + 0.5);
      const share = (value - low) / (high - low || 1);
      if (value !== null) fill(share, "shade", left, top, Math.ceil(right - left), Math.ceil(bottom - top));
    }));
  }

  // Numbers across that have a name: a dotted line each. In rows the first is what the others are compared with.
  function name({ ctx, bbox, px, x, line: set, stroke }, marks, rows) {
    const right = bbox.left + bbox.width, write = (text, left, above) => {
      ctx.fillText(text, Math.min(Math.max(left, 0), right - ctx.measureText(text).width), bbox.top - above * px);
    };
    ctx.font = FONT.replace("12px", `${12 * px}px`);
    ctx.textAlign = "left";
    ctx.strokeStyle = ctx.fillStyle = colour("soft");
    marks.forEach(([value, text], n) => {
      const place = x(value), zero = rows && !n, better = "\u25C0 better";
      set(1, zero ? [] : [2, 3]);
      stroke([[place, bbox.top - 4 * px], [place, bbox.top + bbox.height]]);
      if (!zero) return rows && place - x(0) < 130 * px ? null : write(text, place + 5 * px, 6);
      write(text, place - ctx.measureText(text).width / 2, 26);
      write(better, place - 8 * px - ctx.measureText(better).width, 8);
      write("worse \u25B6", place + 8 * px, 8);
    });
  }

  // The pointer: numbers of lines in the legend, a dot or a cell in words.
  function read(one, { u, panel }, box) {
    const { figure, place, chart } = one, { left, top } = u.cursor, gone = !(left >= 0), at = figure.querySelector(".at");
    if (chart.kind === "lines" && place.querySelector(".legend")) {
      const far = (x) => Math.abs(u.valToPos(x, "x") - left);
      const nearest = (values) => values.reduce((best, x, n) => (far(x) < far(values[best]) ? n : best), 0);
      const places = panel.series.flatMap(({ x }) => x);
      say(at, gone || !places.length ? "" : places[nearest(places)].toLocaleString("en"));
      place.querySelectorAll(".value").forEach((value, n) => {
        const { x, y, value: last } = panel.series[n], number = gone ? undefined : y[nearest(x)];
        say(value, number === undefined ? last.replace(isLog(one) ? /^[\u25B2\u25BC] / : "", "") : number === null ? "-" : written(number, chart));
      });
    } else if (panel.cells) {
      const column = panel.edges.findLastIndex((edge) => edge <= u.posToVal(left, "x"));
      const n = Math.min(column, panel.places.length - 1), layer = Math.round(u.posToVal(top, "y"));
      const value = panel.cells[layer]?.[n], words = `layer ${layer}, ${panel.places[n]?.toLocaleString("en")}: ${value ?? "-"}`;
      say(box.parentNode.querySelector(".reading"), gone || value === undefined ? "" : words);
    } else if (chart.kind === "dots" && !chart.bare) {
      const far = (x, y) => Math.hypot(u.valToPos(x, "x") - left, u.valToPos(y, "y") - top);
      const dots = panel.series.flatMap(({ x, y, words = [] }) => words.map((text, n) => [far(x[n], y[n]), text]));
      say(at, gone ? "" : dots.reduce((best, next) => (next[0] < best[0] ? next : best), [12, ""])[1]);
    }
  }

  // The arrow keys move the pointer from point to point, and choose a line.
  function listen(one) {
    const plots = one.place.querySelector(".plots");
    let at = Infinity, line = -1;
    plots.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      const [right, down] = moves[event.key] ?? [0, 0], [{ u, panel }] = one.plots;
      if ((!right && !down) || one.chart.kind !== "lines" || !panel.series.length) return;
      event.preventDefault();
      const places = [...new Set(panel.series.flatMap(({ x }) => x))].sort((a, b) => a - b);
      at = Math.min(Math.max(Math.min(at, places.length - 1) + right, 0), places.length - 1);
      u.setCursor({ left: u.valToPos(places[at], "x"), top: 1 });
      if (down) line = (line + down + panel.series.length) % panel.series.length;
      if (down) isolate(String(panel.series[line].key));
    });
    plots.addEventListener("blur", () => {
      for (const { u } of one.plots) u.setCursor({ left: -10, top: -10 });
      isolate(null);
    });
    one.figure.querySelector(".switch")?.addEventListener("change", () => begin(one));
  }

  const draw = () => every.forEach(begin);
  let width = 0; // for which everything is drawn
  every.forEach(listen);
  for (const media of ["print", "(prefers-color-scheme: dark)"]) matchMedia(media).addEventListener("change", draw);
  new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width !== width) draw();
    ({ width } = contentRect);
  }).observe(document.body);
  return {
    fade(key) {
      chosen = key;
      for (const { plots } of every) for (const { u } of plots) u.redraw(false);
    },
  };
})();
