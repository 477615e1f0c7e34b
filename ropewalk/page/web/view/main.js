// The page as a whole: reads the lines and the model, draws every panel, keeps the address.
"use strict";
(() => {
  const { byId, make, fill, whole, number, tokens } = Ropewalk.dom;
  const { state, facts, length, change } = Ropewalk.state;
  const { t } = Ropewalk.words;
  const FIELDS = ["trained_len", "head_dim", "rotary_dim", "base", "heads", "layers"];
  const NEEDS = ["nothing", "tuning", "training"];
  const last = {}; // the last line of each side that could be drawn
  let notes = [],
    scheduled = 0;

  function start() {
    Ropewalk.state.start();
    fill(byId("names"), ...Ropewalk.catalogue.presets.map(({ name, idea }) => make("option", { value: name }, idea)));
    for (const side of ["a", "b"])
      byId(`line-${side}`).addEventListener("input", (event) => change({ [side]: event.target.value }));
    byId("to").addEventListener("input", (event) => change({ to: Number(event.target.value) }));
    for (const field of FIELDS) byId(field).addEventListener("change", (event) => setField(field, event.target.value));
    byId("config").addEventListener("input", (event) => pasted(event.target.value));
    for (const button of document.querySelectorAll("[data-language]")) {
      button.addEventListener("click", () => change({ language: button.dataset.language }));
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      redraw();
      Ropewalk.live.redraw(true);
    });
    if (location.hash.length < 2) open(Ropewalk.opening);
    Ropewalk.state.listen(later);
    redraw();
    Ropewalk.live.start();
    document.body.dataset.ready = "";
  }

  // What the page was written for: an address without a view of its own shows that.
  function open({ config, target_len, ...lines }) {
    if (config) pasted(config);
    const to = target_len ? Ropewalk.state.step(target_len) : state.to;
    if (Object.keys(lines).length || to !== state.to) change({ ...lines, to });
  }

  // Typing and sliding draw once per frame.
  function later() {
    cancelAnimationFrame(scheduled);
    scheduled = requestAnimationFrame(redraw);
  }

  function redraw() {
    Ropewalk.words.choose(state.language ?? Ropewalk.words.ofBrowser());
    document.title = `${state.a} | ${state.b} · Ropewalk`;
    showModel();
    showTarget();
    const sides = { a: read("a"), b: read("b") };
    const angles = Ropewalk.schedule.draw(sides);
    Ropewalk.matrix.draw(sides);
    Ropewalk.logits.draw(sides);
    Ropewalk.use.draw(sides, angles);
    Ropewalk.live.redraw();
  }

  // One line: what it is, or why it is refused. A refused line leaves the last good one drawn.
  function read(side) {
    const input = byId(`line-${side}`),
      about = byId(`about-${side}`);
    if (document.activeElement !== input) input.value = state[side];
    try {
      const built = build(state[side].trim());
      input.setAttribute("aria-invalid", "false");
      fill(about, ...description(state[side].trim(), built));
      return (last[side] = built);
    } catch (refused) {
      if (!(refused instanceof Ropewalk.Refusal)) throw refused;
      input.setAttribute("aria-invalid", "true");
      fill(about, make("span", { class: "wrong" }, refused.message));
      return build(fitting(last[side]?.line) ?? "rope");
    }
  }

  function build(line) {
    const model = facts(),
      target = length(),
      extension = Ropewalk.extension.parse(line, model, target);
    Ropewalk.extension.checkAgainst(extension, model);
    const view = Ropewalk.diagnostics.view(extension, model, target);
    const names = Ropewalk.notation.read(line).map((term) => entryOf(term.name)?.needs ?? "nothing");
    const needs = NEEDS[Math.max(...names.map((need) => NEEDS.indexOf(need)))];
    return { line, extension, view, needs, own: state.own, layered: extension.layers.size > 0 };
  }

  function fitting(line) {
    try {
      return line && build(line) && line;
    } catch {
      return null;
    }
  }

  // The preset or method of a name; its key is the name that is unique.
  function entryOf(name) {
    const preset = Ropewalk.catalogue.presets.find((candidate) => candidate.name === name);
    if (preset) return { ...preset, key: name };
    const methods = Object.entries(Ropewalk.catalogue.slots).flatMap(([slot, content]) => {
      return content.methods.map((method) => ({ ...method, key: `${slot}.${method.name}` }));
    });
    return methods.find((method) => method.name === name || method.key === name);
  }

  // The idea of every term, and what it is made of.
  function description(line, { extension }) {
    const ideas = Ropewalk.notation
      .read(line)
      .map(({ name }) => entryOf(name))
      .filter(Boolean)
      .map(Ropewalk.words.idea);
    const made =
      madeOf(extension) +
      [...extension.layers].map(([key, one]) => `; ${t("in_layer", { key })}: ${madeOf(one)}`).join("");
    return [
      make("span", {}, ideas.join(" ")),
      ...(made && made !== line ? [make("code", {}, `= ${made}`)] : []),
      formulas(extension),
    ];
  }

  const madeOf = (extension) => Ropewalk.extension.specs(extension).map(Ropewalk.record.line).join(" + ");

  // The page of every method in it: the formula as its source file has it.
  function formulas(extension) {
    const pages = Ropewalk.extension.specs(extension).map(({ slot, name }) => {
      const { formula, source } = Ropewalk.record.entry(slot, name);
      return `${slot}.${name}\n\n${formula}\n\n${source}`;
    });
    const summary = make("summary", {}, t("formula"));
    return pages.length ? make("details", {}, summary, make("pre", {}, pages.join("\n\n\n"))) : null;
  }

  function showModel() {
    const model = facts(),
      own = state.own ? t("own_schedule", { type: state.own.type }) : "";
    byId("model-summary").textContent = t("model_summary", {
      trained: whole(model.trained_len),
      dims: Ropewalk.facts.rotating(model),
      base: whole(model.base),
      heads: model.heads,
      layers: model.layers,
      own,
    });
    for (const field of FIELDS) {
      if (document.activeElement !== byId(field)) byId(field).value = model[field] ?? "";
    }
    byId("rotary_dim").placeholder = t("all");
    fill(
      byId("model-notes"),
      ...notes.map(([word, values]) => {
        return word === "wrong" ? make("p", { class: "wrong" }, values) : make("p", {}, t(word, values));
      }),
    );
  }

  function showTarget() {
    const slider = byId("to"),
      shown = t("target_shown", { length: whole(length()), times: number(length() / facts().trained_len) });
    slider.value = state.to;
    slider.setAttribute("aria-valuetext", shown);
    byId("to-shown").textContent = shown;
  }

  // A number of the model, as people write lengths: 4096, 32k. A wrong one is refused and the model stays.
  function setField(field, text) {
    const stated = { ...state.stated },
      refusedBy = (sentence) => (notes = [["wrong", sentence]]);
    try {
      const value =
        text.trim() === "" ? null : field === "base" ? Number(text) : Ropewalk.notation.length(text, t(field));
      if (value === null) delete stated[field];
      else stated[field] = value;
      if (field === "trained_len") delete stated.original_len;
      const own = field === "heads" || field === "layers" ? state.own : null; // the table was of the other numbers
      if (stated.heads % (stated.kv_heads ?? 1)) stated.kv_heads = null;
      Ropewalk.config.withTable(stated, own);
      notes = [];
      change({ stated, own });
    } catch (refused) {
      if (!(refused instanceof Ropewalk.Refusal)) throw refused;
      refusedBy(refused.message);
      later();
    }
  }

  function pasted(text) {
    notes = [];
    if (!text.trim()) return later();
    try {
      const read = Ropewalk.config.read(text);
      Ropewalk.config.withTable(read.stated, read.own);
      notes = [["read_from", {}], ...read.notes];
      change({ stated: read.stated, own: read.own });
    } catch (refused) {
      if (!(refused instanceof Ropewalk.Refusal)) throw refused;
      notes = [["wrong", refused.message]];
      later();
    }
  }

  start();
})();
