// The page as a whole: reads the lines, draws every panel, keeps the address.
"use strict";
(() => {
  const { byId, make, fill, whole, number, set } = Ropewalk.dom;
  const { BASE, state, times, change } = Ropewalk.state;
  const { find, ask, lengths, model, catalogue, live } = Ropewalk.data;
  const { problem } = Ropewalk.lines;
  const { t, note } = Ropewalk.words;
  const PAUSE = 250; // milliseconds without typing, after which the server is asked
  const last = {}; // the last line of each side that could be drawn
  const failed = {}; // of each side: the line and length that the server did not answer, and what it said
  let scheduled = 0,
    asking = 0,
    spoken = ""; // the language of the names to choose from

  function start() {
    Ropewalk.state.start();
    for (const side of ["a", "b"]) {
      byId(`line-${side}`).addEventListener("input", ({ target }) => target.value.trim() && change({ [side]: target.value }));
      byId(`line-${side}`).addEventListener("blur", ({ target }) => target.value.trim() || later()); // an empty field gets its line back
    }
    byId("to").max = lengths.length - 1;
    byId("to").addEventListener("input", (event) => change({ to: lengths[Number(event.target.value)].length }));
    for (const button of document.querySelectorAll("[data-language]")) {
      button.addEventListener("click", () => change({ language: button.dataset.language }));
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      redraw();
      Ropewalk.live.redraw(true);
    });
    Ropewalk.share.start();
    Ropewalk.state.listen(later);
    redraw();
    Ropewalk.live.start();
    if (/[#&]step=/.test(location.hash)) byId("walk").scrollIntoView(); // a link to a step shows it
    document.body.dataset.ready = "";
  }

  // Typing and sliding draw once per frame.
  function later() {
    cancelAnimationFrame(scheduled);
    scheduled = requestAnimationFrame(redraw);
  }

  // The page's words, and the names to choose from with their ideas.
  function speak(language) {
    const before = spoken;
    Ropewalk.words.choose(language);
    spoken = Ropewalk.words.current();
    if (spoken === before) return;
    fill(byId("names"), ...Ropewalk.given.presets.map((name) => make("option", { value: name }, idea(catalogue[name]))));
  }

  // A method from outside has one in its author's language alone.
  const idea = (page) => (spoken === "zh" && page?.chinese) || page?.idea || "";

  function redraw() {
    speak(state.language ?? Ropewalk.words.ofBrowser());
    showModel();
    showTarget();
    const sides = { a: read("a"), b: read("b") };
    Ropewalk.share.named({ a: sides.a.line, b: sides.b.line });
    document.title = [`${sides.a.line} | ${sides.b.line}`, modelName(), "Ropewalk"].filter(Boolean).join(" · ");
    Ropewalk.lead.draw();
    Ropewalk.lookup.draw();
    Ropewalk.walk.draw();
    Ropewalk.schedule.draw(sides);
    Ropewalk.matrix.draw(sides);
    Ropewalk.logits.draw(sides);
    Ropewalk.use.draw(sides);
    Ropewalk.live.redraw();
  }

  // One line: what it is, or why it is not drawn. Then the last line that was drawn stays, and says which is `wrong`.
  function read(side) {
    const input = byId(`line-${side}`),
      about = byId(`about-${side}`),
      line = state[side].trim(),
      drawing = find(line, state.to);
    if (document.activeElement !== input) input.value = state[side];
    const isDrawn = drawing && !drawing.refused,
      waits = !drawing && live && failed[side]?.of !== `${line}@${state.to}`;
    input.setAttribute("aria-invalid", String(!isDrawn && !waits));
    if (isDrawn) {
      last[side] = line;
      fill(about, ...description(drawing));
      return drawing;
    }
    if (waits) askSoon();
    fill(about, make("span", waits ? {} : { class: "wrong" }, waits ? t("asking") : why(side, line, drawing)));
    const kept = find(last[side], state.to),
      shown = kept && !kept.refused ? kept : find(BASE, state.to);
    return waits ? shown : { ...shown, wrong: { line, said: about.textContent } };
  }

  function why(side, line, drawing) {
    if (drawing) return t("refused_as", { said: drawing.refused });
    if (live) return failed[side].said;
    const wrong = problem(line);
    if (wrong) return wrong;
    return t("not_here", { command: Ropewalk.use.pageCommand() });
  }

  // Ask for what is not drawn yet, once nobody types.
  function askSoon() {
    clearTimeout(asking);
    asking = setTimeout(async () => {
      await Promise.all(["a", "b"].map(askFor));
      Ropewalk.state.write();
      later();
    }, PAUSE);
  }

  async function askFor(side) {
    const line = state[side].trim(),
      to = state.to;
    if (find(line, to)) return;
    try {
      await ask(line, to);
    } catch (refused) {
      failed[side] = { of: `${line}@${to}`, said: refused instanceof Ropewalk.Refusal ? refused.message : t("strange") };
    }
  }

  // The idea of every term, what it is made of, and the formulas as the source files have them.
  function description({ line, terms, made, methods, pages: outside = {} }) {
    const pageOf = (name) => outside[name] ?? catalogue[name];
    const ideas = terms.map((term) => idea(pageOf(term))).join(" ");
    const parts = made.map(([layer, text]) => `${layer === null ? "" : `${where(layer)}: `}${text.replace(/key heads?/g, (said) => note(said))}`);
    const whole = parts.filter(Boolean).join("; ");
    const pages = methods.flatMap((name) => page(name, pageOf(name)));
    return [
      make("span", {}, ideas),
      whole && whole !== line ? make("code", {}, `= ${whole}`) : null,
      pages.length
        ? make("details", {}, make("summary", {}, t("formula")), ...pages)
        : null,
    ];
  }

  const where = (key) => (key === -1 ? t("in_last_layer") : t(typeof key === "string" ? "in_layers" : "in_layer", { key }));

  // A method: its formula set as mathematics, or as its docstring has it.
  const page = (name, { formula, math, source }) => [
    make("h3", {}, make("span", { class: "name" }, name)),
    math ? make("div", { class: "wide", tabindex: 0, role: "group", "aria-label": name }, set(math)) : make("pre", {}, formula),
    make("p", { class: "soft" }, source),
  ];

  const modelName = () => Ropewalk.given.named || (Ropewalk.given.usual ? t("usual_model") : "");

  function showModel() {
    byId("model-summary").textContent = t("model_summary", {
      name: modelName() && `${modelName()}${t("comma")}`,
      trained: whole(model.trained_len),
      dims: model.rotating,
      base: whole(model.base),
      heads: model.heads,
      layers: model.layers,
      own: Ropewalk.given.own ? t("own_schedule", { type: Ropewalk.given.own }) : "",
    });
    byId("model-other").hidden = live;
  }

  function showTarget() {
    const slider = byId("to"),
      shown = t("target_shown", { length: whole(state.to), times: number(times()) });
    slider.value = lengths.findIndex(({ length }) => length === state.to);
    slider.setAttribute("aria-valuetext", shown);
    byId("to-shown").textContent = shown;
  }

  start();
})();
