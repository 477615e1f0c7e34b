// The reach: a matrix of what each query sees, on a canvas, and the effective distances of the last query.
"use strict";
Ropewalk.matrix = (() => {
  const { byId, make, fill, number, whole, tokens, colour } = Ropewalk.dom;
  const { show, caption, hint, multiples } = Ropewalk.charts;
  const { t } = Ropewalk.words;
  const cursor = { row: Infinity, column: 0, shown: false }; // one for both, so that they can be compared
  let drawn = {};

  function draw(sides) {
    drawn = sides;
    for (const side of ["a", "b"]) drawMatrix(side, sides[side]);
    drawDistances(sides);
  }

  function drawMatrix(side, drawing) {
    const figure = byId(`matrix-${side}`),
      place = figure.querySelector(".matrix");
    figure.className = `cell side-${side}`;
    caption(
      figure,
      [make("b", { class: "badge" }, side.toUpperCase()), " ", make("b", {}, seenWords(drawing))],
      legend(side, drawing),
    );
    if (!place.firstChild) build(side, place);
    label(place, drawing);
    const canvas = place.querySelector("canvas");
    canvas.setAttribute("aria-label", `${side.toUpperCase()}: ${t("reach")}. ${seenWords(drawing)}. ${t("keyboard")}`);
    paint(canvas, drawing, side);
    point();
  }

  // How many keys the last query sees.
  function seenWords({ reach: { seen }, length }) {
    return seen === length ? t("seen_all") : t("seen_some", { seen: whole(seen), all: whole(length) });
  }

  function legend(side, { reach, known, length }) {
    const item = (style, word) => {
      const box = make("i");
      box.style.background = style;
      return make("span", { class: "legend" }, box, t(word));
    };
    const ramp = `linear-gradient(to right, ${colour(side)}, color-mix(in srgb, ${colour(side)} 22%, ${colour("sheet")}))`;
    return make(
      "span",
      {},
      item(ramp, "legend_near"),
      reach.furthest > known ? item(colour("new"), "legend_new") : "",
      reach.seen === length ? "" : item(colour("sheet"), "legend_unseen"),
    );
  }

  function build(side, place) {
    const canvas = make("canvas", { tabindex: 0, role: "img" });
    canvas.addEventListener("pointermove", (event) => at(canvas, event));
    canvas.addEventListener("pointerdown", (event) => at(canvas, event));
    canvas.addEventListener("keydown", (event) => step(event));
    canvas.addEventListener("focus", () => moveTo(cursor.row, cursor.column));
    place.append(make("div", { class: "rows" }), canvas, make("div", { class: "columns" }));
  }

  function label(place, { length }) {
    const end = tokens(length);
    fill(place.querySelector(".rows"), ...["0", t("query_axis"), end].map((text) => make("span", {}, text)));
    fill(place.querySelector(".columns"), ...["0", t("key_axis"), end].map((text) => make("span", {}, text)));
  }

  // A cell is one query and one key: tokens at equal steps, and the last token.
  function paint(canvas, { reach, known, length, places }, side) {
    canvas.width = canvas.height = places.length;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    const near = rgb(context, colour(side)),
      far = mixed(near, rgb(context, colour("sheet")), 0.78);
    const red = mixed(rgb(context, colour("new")), rgb(context, colour("sheet")), 0.2),
      most = Math.max(Math.min(known, length), 1);
    const image = context.createImageData(places.length, places.length);
    reach.distances.forEach((row, query) => {
      row.forEach((distance, key) => {
        if (distance === null) return;
        const shade = distance > known ? red : mixed(near, far, Math.sqrt(Math.min(Math.max(distance, 0) / most, 1)));
        image.data.set([...shade, 255], 4 * (query * places.length + key));
      });
    });
    context.clearRect(0, 0, places.length, places.length);
    context.putImageData(image, 0, 0);
    canvas.picture = image;
  }

  const mixed = (one, other, share) => one.map((value, index) => Math.round(value + (other[index] - value) * share));

  function rgb(context, name) {
    context.fillStyle = name;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  }

  function at(canvas, event) {
    const box = canvas.getBoundingClientRect();
    const cell = (offset, size) => Math.floor((offset / size) * canvas.width);
    moveTo(cell(event.clientY - box.top, box.height), cell(event.clientX - box.left, box.width));
  }

  function step(event) {
    const by = event.shiftKey ? 8 : 1;
    const [rows, columns] =
      { ArrowUp: [-by, 0], ArrowDown: [by, 0], ArrowLeft: [0, -by], ArrowRight: [0, by] }[event.key] ?? [];
    if (rows === undefined) return;
    event.preventDefault();
    moveTo(within(cursor.row) + rows, within(cursor.column) + columns);
  }

  function moveTo(row, column) {
    Object.assign(cursor, { row: within(row), column: within(column), shown: true });
    point();
  }

  const within = (cell) => Math.min(Math.max(cell, 0), drawn.a.places.length - 1);

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
      readout.textContent = cursor.shown ? describe(drawn[side]) : hint(figure);
      if (!cursor.shown) continue;
      context.fillStyle = colour("ink");
      context.globalAlpha = 0.3;
      context.fillRect(0, within(cursor.row), canvas.width, 1);
      context.fillRect(within(cursor.column), 0, 1, canvas.width);
      context.globalAlpha = 1;
    }
  }

  function describe({ reach, places }) {
    const [row, column] = [within(cursor.row), within(cursor.column)],
      [query, key] = [places[row], places[column]];
    const words = { query: whole(query), key: whole(key), true: whole(query - key) };
    if (key > query) return t("cell_later", words);
    const distance = reach.distances[row][column];
    return distance === null ? t("cell_unseen", words) : t("cell_seen", { ...words, distance: number(distance) });
  }

  function drawDistances({ a, b }) {
    const { length, places } = a,
      xs = places.map((key) => length - 1 - key).reverse();
    const line = ({ reach }) => [...reach.distances.at(-1)].reverse();
    const data = [xs, line(a), line(b)],
      figure = byId("distances"),
      { trained_len } = a.ground;
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
