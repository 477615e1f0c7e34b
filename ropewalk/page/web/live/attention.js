// The attention of one head over the last tokens of the text, as a heat map.
"use strict";
Ropewalk.attention = (() => {
  const { byId, make, number, colour } = Ropewalk.dom;
  const { caption } = Ropewalk.charts;
  const { t } = Ropewalk.words;
  const asked = { side: "a", layer: 0, head: 0 };
  let live = null; // the state of the live panels; live.attention is the last answer

  function part(state) {
    live = state;
    const { layers = 1, heads = 1 } = live.models[asked.side].ropewalk;
    const both = ["a", "b"].map((side) => [side, `${side.toUpperCase()} ${live.models[side].id}`]);
    const row = make(
      "div",
      { class: "picks" },
      choice("side", both),
      choice("layer", upTo(layers)),
      choice("head", upTo(heads)),
    );
    const controls = make("div", {}, row, Ropewalk.panel.runner("show_attention", "attention", live, attend));
    if (!live.attention) return Ropewalk.panel.part("attention", controls);
    return Ropewalk.panel.part(
      "attention",
      make("div", { class: "two" }, controls, Ropewalk.panel.figure("heat", "heat")),
    );
  }

  const upTo = (count) => Array.from({ length: count }, (_, index) => [index, String(index)]);

  function choice(name, values) {
    const select = make(
      "select",
      { id: `attention-${name}` },
      values.map(([value, text]) => {
        return make("option", { value, selected: String(value) === String(asked[name]) }, text);
      }),
    );
    select.addEventListener("change", () => (asked[name] = name === "side" ? select.value : Number(select.value)));
    return make("label", {}, make("span", {}, t(name === "side" ? "model" : name)), select);
  }

  async function attend() {
    const { side, layer, head } = asked,
      model = live.models[side].id;
    const read = await Ropewalk.server.json("api/attention", { text: live.text, model, layer, head });
    live.attention = { ...read, side };
  }

  function draw() {
    if (!live.attention) return;
    const { weights, side } = live.attention,
      count = weights.length,
      figure = byId("heat");
    const label = `${t("attention")}. ${t("keyboard")}`;
    const canvas = make("canvas", { width: count, height: count, tabindex: 0, role: "img", "aria-label": label });
    caption(figure, make("b", {}, t("attention_axes")));
    figure.querySelector(".heat").append(canvas);
    paint(canvas.getContext("2d"), weights, colour(side));
    pointed(canvas, figure.querySelector(".readout"));
  }

  // Stronger is more, beside the largest of its row; the square root shows small weights too.
  function paint(context, weights, accent) {
    context.fillStyle = accent;
    weights.forEach((row, query) => {
      const most = Math.max(...row, 1e-9);
      row.forEach((weight, key) => {
        context.globalAlpha = Math.sqrt(Math.min(Math.max(weight / most, 0), 1));
        context.fillRect(key, query, 1, 1);
      });
    });
  }

  function pointed(canvas, readout) {
    const { weights, tokens } = live.attention,
      place = { row: weights.length - 1, column: 0 };
    const read = (row, column) => {
      place.row = Math.min(Math.max(row, 0), weights.length - 1);
      place.column = Math.min(Math.max(column, 0), place.row);
      const [query, key] = [tokens[place.row], tokens[place.column]].map((token) => JSON.stringify(token));
      readout.textContent = t("attention_readout", { query, key, weight: number(weights[place.row][place.column]) });
    };
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect(),
        cell = (offset, size) => Math.floor((offset / size) * weights.length);
      read(cell(event.clientY - box.top, box.height), cell(event.clientX - box.left, box.width));
    });
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!by) return;
      event.preventDefault();
      readout.setAttribute("aria-live", "polite");
      read(place.row + by[0], place.column + by[1]);
    });
  }

  return { part, draw };
})();
