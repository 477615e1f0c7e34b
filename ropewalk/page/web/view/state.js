// What the page shows: two lines, a target length, a step of the walk, a language. It stands in the address, so that a link shows it too.
"use strict";
Ropewalk.state = (() => {
  const { first: DEFAULTS } = Ropewalk.given;
  const { lengths, model } = Ropewalk.data;
  const state = { ...DEFAULTS, step: 1, language: null };
  const STEPS = 10; // of the walk
  const listeners = [];

  // The one of the page's target lengths that is nearest to a number of tokens.
  function nearest(tokens) {
    const ratio = ({ length }) => Math.abs(Math.log(length / tokens));
    return tokens >= 1 ? lengths.reduce((one, other) => (ratio(other) < ratio(one) ? other : one)).length : DEFAULTS.to;
  }

  function read(hash) {
    const values = readable(hash.replace(/^#/, ""));
    Object.assign(state, {
      a: values.get("a") ?? DEFAULTS.a,
      b: values.get("b") ?? DEFAULTS.b,
      to: nearest(Number(values.get("to") ?? DEFAULTS.to)),
      step: Math.min(Math.max(Math.trunc(Number(values.get("step"))) || 1, 1), STEPS),
      language: values.get("lang") ?? null,
    });
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

  // Only what differs from the default, so that links stay short.
  function written() {
    const values = new Map();
    for (const name of ["a", "b", "to"]) if (state[name] !== DEFAULTS[name]) values.set(name, state[name]);
    if (state.step !== 1) values.set("step", state.step);
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

  const times = () => state.to / model.trained_len;
  return { state, times, change, start, listen: (listener) => listeners.push(listener) };
})();
