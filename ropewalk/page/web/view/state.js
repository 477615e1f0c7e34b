// What the page shows: two lines, a model, a target length, a language. It stands in the address, so that a link
// shows it too.
"use strict";
Ropewalk.state = (() => {
  const STEPS = 4,
    MOST = 28; // steps of the slider per doubling, and the last one: 128 trained lengths
  const WHOLE = {
    trained: "trained_len",
    dim: "head_dim",
    rotary: "rotary_dim",
    heads: "heads",
    layers: "layers",
    original: "original_len",
  };
  const DEFAULTS = { a: "yarn", b: "rerope+log_n", to: 12, stated: {}, own: null };
  const state = { ...DEFAULTS, language: null };
  const listeners = [];

  // The target length at a step of the slider, in tokens.
  const length = (step = state.to) => Math.round(facts().trained_len * 2 ** (step / STEPS));
  // The step of the slider that is nearest to a target length.
  const step = (tokens) =>
    Math.min(MOST, Math.max(1, Math.round(STEPS * Math.log2(tokens / facts().trained_len))));
  const facts = () => Ropewalk.config.withTable(state.stated, state.own);

  function read(hash) {
    const values = readable(hash.replace(/^#/, ""));
    const stated = {};
    for (const [short, name] of Object.entries(WHOLE)) {
      if (values.has(short)) stated[name] = Number(values.get(short));
    }
    if (values.has("base")) stated.base = Number(values.get("base"));
    const to = Number(values.get("to") ?? DEFAULTS.to);
    const next = {
      a: values.get("a") ?? DEFAULTS.a,
      b: values.get("b") ?? DEFAULTS.b,
      to: Number.isInteger(to) && to >= 1 && to <= MOST ? to : DEFAULTS.to,
      stated,
      own: ownOf(values.get("own")),
      language: values.get("lang"),
    };
    try {
      Ropewalk.config.withTable(next.stated, next.own);
    } catch {
      Object.assign(next, { stated: {}, own: null }); // a broken link shows the usual model
    }
    Object.assign(state, next);
  }

  // name=value&name=value, in which + is a plus: people write lines like rerope+log_n into addresses.
  function readable(text) {
    const values = new Map();
    for (const part of text.split("&")) {
      const place = part.indexOf("=");
      if (place > 0) values.set(part.slice(0, place), decoded(part.slice(place + 1)));
    }
    return values;
  }

  function decoded(text) {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  }

  // Readable where an address allows it.
  const encoded = (value) =>
    encodeURIComponent(value).replace(/%(2B|3A|2C|3D|5B|5D)/g, (code) => decodeURIComponent(code));

  function ownOf(text) {
    try {
      return text ? JSON.parse(text) : null;
    } catch {
      return null;
    }
  }

  // Only what differs from the default, so that links stay short.
  function written() {
    const values = new Map();
    for (const name of ["a", "b", "to"]) if (state[name] !== DEFAULTS[name]) values.set(name, state[name]);
    for (const [short, name] of Object.entries({ ...WHOLE, base: "base" })) {
      const value = state.stated[name] ?? null;
      if (value !== null && value !== Ropewalk.facts.DEFAULTS[name]) values.set(short, value);
    }
    if (state.own) values.set("own", JSON.stringify(state.own));
    if (state.language) values.set("lang", state.language);
    return `#${[...values].map(([name, value]) => `${name}=${encoded(value)}`).join("&")}`;
  }

  function change(values) {
    Object.assign(state, values);
    history.replaceState(null, "", written());
    for (const listener of listeners) listener();
  }

  function start() {
    read(location.hash);
    addEventListener("hashchange", () => {
      read(location.hash);
      for (const listener of listeners) listener();
    });
  }

  return { state, facts, length, step, change, start, listen: (listener) => listeners.push(listener), MOST, STEPS };
})();
