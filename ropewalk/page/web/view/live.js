// The live panels: losses of a text, attention of one head. Without a server, one line says how to start one.
"use strict";
Ropewalk.live = (() => {
  const { byId, make, fill, number, whole, colour } = Ropewalk.dom;
  const { show, caption } = Ropewalk.charts;
  const { t } = Ropewalk.words;
  const BARE = "@bare", COMMAND = "ropewalk serve";
  const FULL_SHADE = 7, BREAK = 0.5; // nats of the darkest token; nats that count as broken
  const live = { found: null, text: "", models: {}, losses: null, attention: null, token: null };

  async function start() {
    await connect();
  }

  async function connect() {
    live.found = await Ropewalk.server.find();
    build();
  }

  // Where words or colours have changed; what was typed and measured stays.
  function redraw(recoloured = false) {
    const isOther = live.language !== Ropewalk.words.current();
    if (byId("live-body").childElementCount && (isOther || recoloured)) build();
  }

  function build() {
    const place = byId("live-body");
    live.language = Ropewalk.words.current();
    if (!live.found) return fill(place, make("p", { class: "said" }, t("live_none")), make("pre", {}, COMMAND));
    if (live.found.locked) return fill(place, keyForm());
    fill(place, picks(), lossesPart(), attentionPart(), Ropewalk.chat.part(live));
    drawLosses();
    drawAttention();
  }

  function keyForm() {
    const input = make("input", { type: "password", id: "key", autocomplete: "off" });
    const connecting = () => (Ropewalk.server.keep(input.value.trim()), connect());
    input.addEventListener("keydown", (event) => event.key === "Enter" && connecting());
    const button = make("button", { type: "button", class: "small", onclick: connecting }, t("connect"));
    return make("div", { class: "picks" }, make("label", {}, make("span", {}, t("key_needed"), " ", t("key")), input), make("div", {}, button));
  }

  // Which two models: at first those of the lines above, where the server has them.
  function picks() {
    const { models } = live.found;
    for (const side of ["a", "b"]) {
      const wanted = models.find(({ ropewalk }) => ropewalk.extension === Ropewalk.state.state[side]);
      const others = models.filter(({ id }) => id !== live.models.a?.id);
      live.models[side] ??= wanted ?? others[side === "a" ? 0 : others.length - 1] ?? models[0];
    }
    return make("div", { class: "picks" }, ["a", "b"].map(pick));
  }

  function pick(side) {
    const select = make("select", { id: `model-${side}` }, live.found.models.map((model) => {
      return make("option", { value: model.id, selected: model.id === live.models[side].id }, model.id);
    }));
    select.addEventListener("change", () => {
      live.models[side] = live.found.models.find(({ id }) => id === select.value);
      live.losses = live.attention = null;
      Ropewalk.chat.forget(side);
      build();
    });
    return make("label", { class: `side-${side}` }, make("span", {}, make("b", { class: "badge" }, side.toUpperCase()), " ", t("model")), select);
  }

  function part(name, ...children) {
    return make("section", { class: "live-part", "aria-label": t(name) }, make("h3", {}, t(name)), make("p", {}, t(`${name}_about`)), ...children);
  }

  function figureOf(id, kind = "chart") {
    const readout = make("p", { class: "readout", "aria-live": "off" });
    return make("figure", { class: "cell", id }, make("figcaption"), make("div", { class: kind }), readout);
  }

  // Losses

  function lossesPart() {
    const area = make("textarea", { id: "text", rows: 5, "aria-label": t("your_text"), placeholder: t("your_text") });
    area.value = live.text;
    area.addEventListener("input", () => (live.text = area.value));
    const said = make("span", { class: "said", id: "losses-said", role: "status" });
    const button = make("button", { type: "button", onclick: () => measure(button, said) }, t("measure"));
    const run = make("div", { class: "run" }, button, said);
    if (!live.losses) return part("losses", area, run);
    return part("losses", area, run, make("div", { class: "two" }, ["a", "b"].map(tokensOf)), figureOf("curve"));
  }

  async function measure(button, said) {
    await attempt(button, said, async () => {
      const ids = [live.models.a.id, live.models.b.id], bare = live.found.models.find(({ id }) => id.endsWith(BARE))?.id;
      const read = await Ropewalk.server.json("api/losses", { text: live.text, models: [...new Set(ids)] });
      const alone = bare && !ids.includes(bare) ? await bareLosses(bare) : null;
      live.losses = { ...read, ids, bare: alone ?? read.losses[bare] ?? null };
      live.token = null;
    });
  }

  // Ask the server about the text, and draw what it answers; what goes wrong is said beside the button.
  async function attempt(button, said, asking) {
    if (!live.text.trim()) return report(said, t("no_text"), true);
    button.disabled = true;
    report(said, t("measuring"));
    try {
      await asking();
      build();
    } catch (refused) {
      live.losses = live.attention = null; // an answer that cannot be drawn is not kept
      report(said, refused instanceof Ropewalk.Refusal ? refused.message : t("strange"), true);
    }
    button.disabled = false;
  }

  // The base model's, for the mark where it breaks; without them there is no mark.
  async function bareLosses(bare) {
    try {
      return (await Ropewalk.server.json("api/losses", { text: live.text, models: [bare] })).losses[bare];
    } catch {
      return null;
    }
  }

  function report(said, words, wrong = false) {
    said.className = wrong ? "said wrong" : "said";
    said.textContent = words;
  }

  // The text with every token coloured by its loss.
  function tokensOf(side, index) {
    const losses = live.losses.losses[live.losses.ids[index]];
    const known = losses.filter((loss) => loss !== null), mean = known.reduce((sum, loss) => sum + loss, 0) / known.length;
    const spans = live.losses.tokens.map((token, place) => {
      const span = make("span", { "data-place": place }, token), share = Math.min((losses[place] ?? 0) / FULL_SHADE, 1);
      span.style.backgroundColor = `color-mix(in srgb, var(--accent) ${Math.round(75 * share)}%, transparent)`;
      return span;
    });
    const box = make("div", { class: "tokens", tabindex: 0, role: "group", "aria-label": `${side.toUpperCase()}: ${t("losses")}. ${t("keyboard")}` }, spans);
    box.addEventListener("pointerover", (event) => event.target.dataset.place && readToken(Number(event.target.dataset.place)));
    box.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      readToken(Math.min(Math.max((live.token ?? -1) + by, 0), spans.length - 1));
    });
    const words = t("mean_loss", { name: live.losses.ids[index], mean: number(mean) });
    return make("div", { class: `cell side-${side}` }, make("h3", {}, make("b", { class: "badge" }, side.toUpperCase()), " ", words), box);
  }

  function readToken(place) {
    live.token = place;
    const { tokens, losses, ids } = live.losses, of = (id) => (losses[id][place] === null ? "–" : number(losses[id][place]));
    const readout = byId("curve").querySelector(".readout");
    readout.setAttribute("aria-live", "polite");
    readout.textContent = t("token_readout", { place: whole(place), token: JSON.stringify(tokens[place]), a: of(ids[0]), b: of(ids[1]) });
    for (const span of document.querySelectorAll(".tokens span")) {
      span.style.outline = Number(span.dataset.place) === place ? `1px solid ${colour("ink")}` : "";
    }
  }

  // The mean of the last `window` losses at each position.
  function smoothed(losses, window) {
    let sum = 0, count = 0;
    return losses.map((loss, place) => {
      const left = losses[place - window];
      if (loss !== null) (sum += loss), count++;
      if ((left ?? null) !== null) (sum -= left), count--;
      return count >= window / 2 ? sum / count : null;
    });
  }

  // Where the base model breaks: the first position from which its loss, on the whole, is above what it was within the
  // trained length, and at which a stretch of the curve is.
  function breaking(curve, trained, window) {
    const mean = (losses) => losses.reduce((sum, loss) => sum + loss, 0) / losses.length;
    const within = curve.slice(Math.floor(trained / 4), trained).filter((loss) => loss !== null);
    if (curve.length < trained + window || !within.length) return null;
    const limit = mean(within) + BREAK, rest = curve.slice(trained);
    if (mean(rest) <= limit) return null;
    for (let place = Math.floor(trained / 2); place + window <= curve.length; place++) {
      const stretch = curve.slice(place, place + window);
      if (stretch.every((loss) => loss > limit) && mean(curve.slice(place)) > limit) return place;
    }
    return null;
  }

  function drawLosses() {
    if (!live.losses) return;
    const { losses, ids, bare, trained_len: trained, tokens } = live.losses, window = Math.max(8, Math.round(tokens.length / 40));
    const curves = [losses[ids[0]], losses[ids[1]], bare ?? []].map((one) => smoothed(one, window));
    const place = bare ? breaking(curves[2], trained, window) : null, figure = byId("curve");
    const words = bare ? (place === null ? t("breaks_not") : t("breaks", { place: whole(place) })) : "";
    caption(figure, make("b", {}, t("curve_title", { window })), words, true);
    const data = [tokens.map((_, index) => index), curves[0], curves[1], ...(bare ? [curves[2]] : [])];
    const series = [{ accent: "a" }, { accent: "b", dash: [6, 3] }, ...(bare ? [{ accent: "soft", width: 1, dash: [2, 2] }] : [])];
    const marks = [{ x: trained, label: t("trained_mark") }];
    if (place !== null) marks.push({ x: place, label: t("breaks_short"), accent: "new" });
    show(figure, {
      title: `${t("curve_title", { window })}. ${words}. ${t("keyboard")}`,
      data, series, marks,
      x: { label: t("position_axis"), tick: Ropewalk.dom.tokens, range: [0, tokens.length], splits: Ropewalk.charts.multiples },
      y: { label: t("loss_axis") },
      describe: (index) => describeToken(index),
    });
  }

  function describeToken(index) {
    const { tokens, losses, ids } = live.losses, of = (id) => ((losses[id][index] ?? null) === null ? "–" : number(losses[id][index]));
    return t("token_readout", { place: whole(index), token: JSON.stringify(tokens[index]), a: of(ids[0]), b: of(ids[1]) });
  }

  // Attention

  function attentionPart() {
    const chosen = (live.chosen ??= { side: "a", layer: 0, head: 0 }), { layers = 1, heads = 1 } = live.models[chosen.side].ropewalk;
    const options = (name, values) => {
      const select = make("select", { id: `attention-${name}` }, values.map(([value, text]) => {
        return make("option", { value, selected: String(value) === String(chosen[name]) }, text);
      }));
      select.addEventListener("change", () => (chosen[name] = name === "side" ? select.value : Number(select.value)));
      return make("label", {}, make("span", {}, t(name === "side" ? "model" : name)), select);
    };
    const upTo = (count) => Array.from({ length: count }, (_, index) => [index, String(index)]);
    const said = make("span", { class: "said", role: "status" });
    const button = make("button", { type: "button", onclick: () => attend(button, said) }, t("show_attention"));
    const both = [["a", `A ${live.models.a.id}`], ["b", `B ${live.models.b.id}`]];
    const row = make("div", { class: "picks" }, options("side", both), options("layer", upTo(layers)), options("head", upTo(heads)));
    const controls = make("div", {}, row, make("div", { class: "run" }, button, said));
    return part("attention", live.attention ? make("div", { class: "two" }, controls, figureOf("heat", "heat")) : controls);
  }

  async function attend(button, said) {
    await attempt(button, said, async () => {
      const { side, layer, head } = live.chosen;
      const read = await Ropewalk.server.json("api/attention", { text: live.text, model: live.models[side].id, layer, head });
      live.attention = { ...read, side };
    });
  }

  // Darker is more, beside the largest of its row; the square root shows small weights too.
  function drawAttention() {
    if (!live.attention) return;
    const { weights, tokens, side } = live.attention, count = weights.length, figure = byId("heat");
    const canvas = make("canvas", { width: count, height: count, tabindex: 0, role: "img", "aria-label": `${t("attention")}. ${t("keyboard")}` });
    caption(figure, make("b", {}, t("attention_axes")));
    figure.querySelector(".heat").append(canvas);
    const context = canvas.getContext("2d");
    context.fillStyle = colour(side);
    weights.forEach((row, query) => {
      const most = Math.max(...row, 1e-9);
      row.forEach((weight, key) => {
        context.globalAlpha = Math.sqrt(Math.min(Math.max(weight / most, 0), 1));
        context.fillRect(key, query, 1, 1);
      });
    });
    const place = { row: count - 1, column: 0 }, readout = figure.querySelector(".readout");
    const read = (row, column) => {
      place.row = Math.min(Math.max(row, 0), count - 1);
      place.column = Math.min(Math.max(column, 0), place.row);
      const [query, key] = [tokens[place.row], tokens[place.column]].map((token) => JSON.stringify(token));
      readout.textContent = t("attention_readout", { query, key, weight: number(weights[place.row][place.column]) });
    };
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect(), cell = (offset, size) => Math.floor((offset / size) * count);
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

  return { start, redraw, smoothed, breaking };
})();
