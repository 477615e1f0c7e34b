// The live panels together: which models, a key where the server wants one. Without a server, one line says how to
// start it.
"use strict";
Ropewalk.live = (() => {
  const { byId, make, fill } = Ropewalk.dom;
  const { t } = Ropewalk.words;
  const COMMAND = "ropewalk serve";
  const live = { found: null, text: "", models: {}, losses: null, attention: null, rebuild: build };
  let language = "";

  async function start() {
    live.found = await Ropewalk.server.find();
    build();
  }

  // Where words or colours have changed; what was typed and measured stays.
  function redraw(recoloured = false) {
    const isOther = language !== Ropewalk.words.current();
    if (byId("live-body").childElementCount && (isOther || recoloured)) build();
  }

  function build() {
    const place = byId("live-body");
    language = Ropewalk.words.current();
    if (!live.found) return fill(place, make("p", { class: "said" }, t("live_none")), make("pre", {}, COMMAND));
    if (live.found.locked) return fill(place, keyForm());
    fill(place, picks(), ...[Ropewalk.losses, Ropewalk.attention, Ropewalk.chat].map((panel) => panel.part(live)));
    Ropewalk.losses.draw();
    Ropewalk.attention.draw();
  }

  function keyForm() {
    const input = make("input", { type: "password", id: "key", autocomplete: "off" });
    const connect = () => (Ropewalk.server.keep(input.value.trim()), start());
    input.addEventListener("keydown", (event) => event.key === "Enter" && connect());
    const button = make("button", { type: "button", class: "small", onclick: connect }, t("connect"));
    const label = make("label", {}, make("span", {}, t("key_needed"), " ", t("key")), input);
    return make("div", { class: "picks" }, label, make("div", {}, button));
  }

  // Which two models: at first those of the lines above, where the server has them.
  function picks() {
    const { models } = live.found;
    for (const side of ["a", "b"]) {
      const line = Ropewalk.state.state[side];
      const wanted = models.find(({ ropewalk }) => ropewalk.extension === (line === "rope" ? "bare" : line));
      const others = models.filter(({ id }) => id !== live.models.a?.id);
      live.models[side] ??= wanted ?? others[side === "a" ? 0 : others.length - 1] ?? models[0];
    }
    return make("div", { class: "picks" }, ["a", "b"].map(pick));
  }

  function pick(side) {
    const select = make(
      "select",
      { id: `model-${side}` },
      live.found.models.map((model) => {
        return make("option", { value: model.id, selected: model.id === live.models[side].id }, model.id);
      }),
    );
    select.addEventListener("change", () => {
      live.models[side] = live.found.models.find(({ id }) => id === select.value);
      live.losses = live.attention = null;
      Ropewalk.chat.forget(side);
      build();
    });
    return make(
      "label",
      { class: `side-${side}` },
      make("span", {}, Ropewalk.panel.badge(side), " ", t("model")),
      select,
    );
  }

  return { start, redraw };
})();
