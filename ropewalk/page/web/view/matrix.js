// The reach: a matrix of what each query sees, on a canvas, and the effective distances of the last query.
"use strict";
Ropewalk.matrix = (() => {
  const { byId, make, fill, number, whole, tokens, colour } = Ropewalk.dom;
  const { show, caption, hint, multiples } = Ropewalk.charts;
  const { t } = Ropewalk.words;
  const CELLS = 192,
    POINTS = 240;
  const cursor = { row: CELLS - 1, column: 0, shown: false }; // one for both, so that they can be compared
  let drawn = {};

  function draw(sides) {
    drawn = sides;
    for (const side of ["a", "b"]) drawMatrix(side, sides[side].view, covered(sides[side]));
    drawDistances(sides);
  }

  // The largest distance that training covers under the schedule.
  function covered({ view }) {
    const stretch = Ropewalk.frequencies.stretchOf(Ropewalk.extension.theta(view.extension));
    return view.facts.trained_len * stretch - 1;
  }

  function drawMatrix(side, view, known) {
    const figure = byId(`matrix-${side}`),
      place = figure.querySelector(".matrix");
    figure.className = `cell side-${side}`;
    caption(
      figure,
      [make("b", { class: "badge" }, side.toUpperCase()), " ", make("b", {}, seenWords(view))],
      legend(side, view, known),
    );
    if (!place.firstChild) build(side, place);
    label(place, view);
    const canvas = place.querySelector("canvas");
    canvas.setAttribute("aria-label", `${side.toUpperCase()}: ${t("reach")}. ${seenWords(view)}. ${t("keyboard")}`);
    paint(canvas, view, known, side);
    point();
  }

  // How many keys the last query sees.
  function seenBy(view) {
    return view.spans.reduce((sum, span) => {
      const [start, stop] = Ropewalk.reach.bounds(span, view.length - 1);
      return sum + stop - start;
    }, 0);
  }

  function seenWords(view) {
    const seen = seenBy(view);
    return seen === view.length ? t("seen_all") : t("seen_some", { seen: whole(seen), all: whole(view.length) });
  }

  function legend(side, view, known) {
    const item = (style, word) => {
      const box = make("i");
      box.style.background = style;
      return make("span", { class: "legend" }, box, t(word));
    };
    const ramp = `linear-gradient(to right, ${colour(side)}, color-mix(in srgb, ${colour(side)} 22%, ${colour("sheet")}))`;
    const isNew = Ropewalk.reach.furthest(view.spans, view.length - 1) > known,
      all = seenBy(view) === view.length;
    return make(
      "span",
      {},
      item(ramp, "legend_near"),
      isNew ? item(colour("new"), "legend_new") : "",
      all ? "" : item(colour("sheet"), "legend_unseen"),
    );
  }

  function build(side, place) {
    const canvas = make("canvas", { width: CELLS, height: CELLS, tabindex: 0, role: "img" });
    canvas.addEventListener("pointermove", (event) => at(canvas, event));
    canvas.addEventListener("pointerdown", (event) => at(canvas, event));
    canvas.addEventListener("keydown", (event) => step(event));
    canvas.addEventListener("focus", () => moveTo(cursor.row, cursor.column));
    place.append(make("div", { class: "rows" }), canvas, make("div", { class: "columns" }));
  }

  function label(place, view) {
    const end = tokens(view.length);
    fill(place.querySelector(".rows"), ...["0", t("query_axis"), end].map((text) => make("span", {}, text)));
    fill(place.querySelector(".columns"), ...["0", t("key_axis"), end].map((text) => make("span", {}, text)));
  }

  // A cell is the last query of its rows; it shows the nearest key of its columns that the query sees.
  function paint(canvas, view, known, side) {
    const context = canvas.getContext("2d", { willReadFrequently: true });
    const image = context.createImageData(CELLS, CELLS);
    const near = rgb(context, colour(side)),
      far = mixed(near, rgb(context, colour("sheet")), 0.78);
    const red = mixed(rgb(context, colour("new")), rgb(context, colour("sheet")), 0.2),
      most = Math.max(Math.min(known, view.length), 1);
    for (let row = 0; row < CELLS; row++) {
      const query = queryOf(view, row);
      for (const span of [...view.spans].reverse()) {
        const [start, stop] = Ropewalk.reach.bounds(span, query);
        if (stop <= start) continue;
        const [first, last] = [start, stop - 1].map((key) => Math.floor((key * CELLS) / view.length));
        for (let column = first; column <= last; column++) {
          const key = Math.min(Math.max(keyOf(view, column), start), stop - 1);
          const distance = span.qAt(query) - span.kAt(key);
          const shade = distance > known ? red : mixed(near, far, Math.sqrt(Math.min(distance / most, 1)));
          image.data.set([...shade, 255], 4 * (row * CELLS + column));
        }
      }
    }
    context.clearRect(0, 0, CELLS, CELLS);
    context.putImageData(image, 0, 0);
    canvas.picture = image;
  }

  const queryOf = (view, row) => Math.max(Math.ceil(((row + 1) * view.length) / CELLS) - 1, 0);
  const keyOf = (view, column) => Math.min(Math.floor(((column + 0.5) * view.length) / CELLS), view.length - 1);
  const mixed = (one, other, share) => one.map((value, index) => Math.round(value + (other[index] - value) * share));

  function rgb(context, name) {
    context.fillStyle = name;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  }

  function at(canvas, event) {
    const box = canvas.getBoundingClientRect();
    const cell = (offset, size) => Math.floor((offset / size) * CELLS);
    moveTo(cell(event.clientY - box.top, box.height), cell(event.clientX - box.left, box.width));
  }

  function step(event) {
    const by = event.shiftKey ? 8 : 1;
    const [rows, columns] =
      { ArrowUp: [-by, 0], ArrowDown: [by, 0], ArrowLeft: [0, -by], ArrowRight: [0, by] }[event.key] ?? [];
    if (rows === undefined) return;
    event.preventDefault();
    moveTo(cursor.row + rows, cursor.column + columns);
  }

  function moveTo(row, column) {
    const inside = (cell) => Math.min(Math.max(cell, 0), CELLS - 1);
    Object.assign(cursor, { row: inside(row), column: inside(column), shown: true });
    point();
  }

  // The cross of the cursor on both canvases, and what is under it.
  function point() {
    for (const side of ["a", "b"]) {
      const figure = byId(`matrix-${side}`),
        canvas = figure.querySelector("canvas");
      if (!canvas?.picture) continue;
      const context = canvas.getContext("2d");
      context.putImageData(canvas.picture, 0, 0);
      const readout = figure.querySelector(".readout");
      readout.setAttribute("aria-live", document.activeElement === canvas ? "polite" : "off");
      readout.textContent = cursor.shown ? describe(drawn[side].view) : hint(figure);
      if (!cursor.shown) continue;
      context.fillStyle = colour("ink");
      context.globalAlpha = 0.55;
      context.fillRect(0, cursor.row, CELLS, 1);
      context.fillRect(cursor.column, 0, 1, CELLS);
      context.globalAlpha = 1;
    }
  }

  function describe(view) {
    const query = queryOf(view, cursor.row),
      key = keyOf(view, cursor.column);
    const places = { query: whole(query), key: whole(key), true: whole(query - key) };
    if (key > query) return t("cell_later", places);
    const distance = Ropewalk.reach.distance(view.spans, query, key);
    return Number.isNaN(distance)
      ? t("cell_unseen", places)
      : t("cell_seen", { ...places, distance: number(distance) });
  }

  function drawDistances({ a, b }) {
    const length = a.view.length,
      xs = [];
    for (let point = 0; point < POINTS; point++) xs.push(Math.round((point * (length - 1)) / (POINTS - 1)));
    const line = ({ view }) =>
      xs.map((x) => {
        const distance = Ropewalk.reach.distance(view.spans, length - 1, length - 1 - x);
        return Number.isNaN(distance) ? null : distance;
      });
    const data = [xs, line(a), line(b)],
      figure = byId("distances"),
      { trained_len } = a.view.facts;
    const shown = (value) => (value === null ? t("unseen_value") : number(value));
    caption(figure, make("b", {}, t("distances_title")), "", true);
    const most = Math.max(trained_len, ...data[1], ...data[2]);
    show(figure, {
      title: `${t("distances_title")}. ${t("keyboard")}`,
      data,
      series: [{ accent: "a" }, { accent: "b", dash: [6, 3] }],
      x: { label: t("distance_axis"), tick: tokens, range: [0, length], splits: multiples },
      y: { label: t("effective_axis"), tick: tokens, range: [0, 1.06 * most], splits: multiples },
      marks: [{ y: trained_len, label: t("trained_mark") }],
      describe: (index) =>
        t("distance_readout", { x: whole(xs[index]), a: shown(data[1][index]), b: shown(data[2][index]) }),
    });
  }

  return { draw };
})();
