// The loss of each token of a text under both models: as colour, and by position.
"use strict";
Ropewalk.losses = (() => {
  const { byId, make, number, whole, colour } = Ropewalk.dom;
  const { show, caption, multiples } = Ropewalk.charts;
  const { t } = Ropewalk.words;
  const BARE = "@bare"; // how the base model's id ends
  const FULL_SHADE = 7,
    BREAK = 0.5; // nats: of the strongest colour, and above the usual that count as broken
  let live = null; // the state of the live panels; live.losses is the last answer
  let chosen = null; // the token that is pointed at

  function part(state) {
    live = state;
    const area = make("textarea", { id: "text", rows: 5, "aria-label": t("your_text"), placeholder: t("your_text") });
    area.value = live.text;
    area.addEventListener("input", () => (live.text = area.value));
    const parts = [area, Ropewalk.panel.runner("measure", "losses", live, measure)];
    if (live.losses)
      parts.push(make("div", { class: "two" }, ["a", "b"].map(tokensOf)), Ropewalk.panel.figure("curve"));
    return Ropewalk.panel.part("losses", ...parts);
  }

  async function measure() {
    const ids = [live.models.a.id, live.models.b.id],
      bare = live.found.models.find(({ id }) => id.endsWith(BARE))?.id;
    const read = await Ropewalk.server.json("api/losses", { text: live.text, models: [...new Set(ids)] });
    const alone = bare && !ids.includes(bare) ? await bareLosses(bare) : null;
    live.losses = { ...read, ids, bare: alone ?? read.losses[bare] ?? null };
    chosen = null;
  }

  // The base model's, for the mark where it breaks; without them there is no mark.
  async function bareLosses(bare) {
    try {
      return (await Ropewalk.server.json("api/losses", { text: live.text, models: [bare] })).losses[bare];
    } catch {
      return null;
    }
  }

  // The text with every token coloured by its loss.
  function tokensOf(side, index) {
    const { tokens, losses, ids } = live.losses,
      of = losses[ids[index]],
      known = of.filter((loss) => loss !== null);
    const spans = tokens.map((token, place) => coloured(token, place, of[place] ?? 0));
    const label = `${side.toUpperCase()}: ${t("losses")}. ${t("keyboard")}`;
    const box = make("div", { class: "tokens", tabindex: 0, role: "group", "aria-label": label }, spans);
    box.addEventListener(
      "pointerover",
      (event) => event.target.dataset.place && point(Number(event.target.dataset.place)),
    );
    box.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      point(Math.min(Math.max((chosen ?? -1) + by, 0), spans.length - 1));
    });
    const words = t("mean_loss", { name: ids[index], mean: number(mean(known)) });
    return make("div", { class: `cell side-${side}` }, make("h3", {}, Ropewalk.panel.badge(side), " ", words), box);
  }

  function coloured(token, place, loss) {
    const span = make("span", { "data-place": place }, token),
      share = Math.min(loss / FULL_SHADE, 1);
    span.style.backgroundColor = `color-mix(in srgb, var(--accent) ${Math.round(75 * share)}%, transparent)`;
    return span;
  }

  // Show a token's losses, and where it stands in both texts.
  function point(place) {
    const readout = byId("curve").querySelector(".readout"),
      spans = (index) => document.querySelectorAll(`.tokens [data-place="${index}"]`);
    for (const span of spans(chosen)) span.style.outline = "";
    for (const span of spans(place)) span.style.outline = `1px solid ${colour("ink")}`;
    chosen = place;
    readout.setAttribute("aria-live", "polite");
    readout.textContent = describe(place);
  }

  function describe(place) {
    const { tokens, losses, ids } = live.losses,
      of = (id) => ((losses[id][place] ?? null) === null ? "–" : number(losses[id][place]));
    return t("token_readout", {
      place: whole(place),
      token: JSON.stringify(tokens[place]),
      a: of(ids[0]),
      b: of(ids[1]),
    });
  }

  const mean = (losses) => losses.reduce((sum, loss) => sum + loss, 0) / losses.length;

  // The mean of the last `window` losses at each position.
  function smoothed(losses, window) {
    let sum = 0,
      count = 0;
    return losses.map((loss, place) => {
      const left = losses[place - window];
      if (loss !== null) ((sum += loss), count++);
      if ((left ?? null) !== null) ((sum -= left), count--);
      return count >= window / 2 ? sum / count : null;
    });
  }

  // Where the base model breaks: the first position from which its loss, on the whole, is further above the better of
  // the others than it was within the trained length, and at which a stretch of the curve is. Beside the others,
  // since some passages are hard for every model.
  function breaking(curve, others, trained, window) {
    const above = curve.map((loss, place) =>
      loss === null ? null : loss - Math.min(...others.map((other) => other[place])),
    );
    const within = above.slice(Math.floor(trained / 4), trained).filter((excess) => excess !== null);
    if (curve.length < trained + window || !within.length) return null;
    const limit = mean(within) + BREAK;
    if (mean(above.slice(trained)) <= limit) return null;
    for (let place = Math.floor(trained / 2); place + window <= above.length; place++) {
      const stretch = above.slice(place, place + window);
      if (stretch.every((excess) => excess > limit) && mean(above.slice(place)) > limit) return place;
    }
    return null;
  }

  function draw() {
    if (!live.losses) return;
    const { losses, ids, bare, trained_len: trained, tokens } = live.losses,
      figure = byId("curve");
    const window = Math.max(8, Math.round(tokens.length / 40)),
      title = t("curve_title", { window });
    const curves = [losses[ids[0]], losses[ids[1]], bare ?? []].map((one) => smoothed(one, window));
    const others = [0, 1].filter((index) => losses[ids[index]] !== bare).map((index) => curves[index]);
    if (!others.length) others.push(curves[2].map(() => 0)); // the base model alone: beside itself
    const place = bare ? breaking(curves[2], others, trained, window) : null;
    const words = !bare ? "" : place === null ? t("breaks_not") : t("breaks", { place: whole(place) });
    const marks = [{ x: trained, label: t("trained_mark") }];
    if (place !== null) marks.push({ x: place, label: t("breaks_short"), accent: "new" });
    const key = bare ? [make("span", { class: "key bare" }, t("base_model"))] : [];
    caption(figure, make("b", {}, title), make("span", {}, ...key, words), true);
    show(figure, {
      title: `${title}. ${words}. ${t("keyboard")}`,
      data: [tokens.map((_, index) => index), curves[0], curves[1], ...(bare ? [curves[2]] : [])],
      series: [
        { accent: "a" },
        { accent: "b", dash: [6, 3] },
        ...(bare ? [{ accent: "soft", width: 1, dash: [2, 2] }] : []),
      ],
      x: { label: t("position_axis"), tick: Ropewalk.dom.tokens, range: [0, tokens.length], splits: multiples },
      y: { label: t("loss_axis") },
      marks,
      describe,
    });
  }

  return { part, draw, breaking };
})();
