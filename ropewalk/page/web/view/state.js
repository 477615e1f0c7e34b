// What the page shows: two lines, a target length, a step of the walk, a language. It stands in the address, so that a link shows it too.
"use strict";
Ropewalk.state = (() => {
  const { first: DEFAULTS } = Ropewalk.given;
  const { lengths, model } = Ropewalk.data;
  const { isSound } = Ropewalk.lines;
  const state = { ...DEFAULTS, step: 1, language: null };
  const STEPS = 10; // of the walk
  const BASE = "rope"; // the line of the unchanged model
  const listeners = [];
  const linked = { a: DEFAULTS.a, b: DEFAULTS.b }; // of each side the last line that a link may hold

  // The one of the page's target lengths that is nearest to a number of tokens.
  function nearest(tokens) {
    const ratio = ({ length }) => Math.abs(Math.log(length / tokens));
    return tokens >= 1 ? lengths.reduce((one, other) => (ratio(other) < ratio(one) ? other : one)).length : DEFAULTS.to;
  }

  function read(hash) {
    const values = readable(hash.replace(/^#/, ""));
    Object.assign(state, {
      a: values.get("a")?.trim() || DEFAULTS.a,
      b: values.get("b")?.trim() || DEFAULTS.b,
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

  // Only what differs from the default, so that links stay short; and in place of a wrong line the last that was right.
  function written() {
    for (const side of ["a", "b"]) if (isSound(state[side].trim(), state.to)) linked[side] = state[side];
    const values = new Map(),
      shown = { ...linked, to: state.to };
    for (const name of ["a", "b", "to"]) if (shown[name] !== DEFAULTS[name]) values.set(name, shown[name]);
    if (state.step !== 1) values.set("step", state.step);
    if (state.language) values.set("lang", state.language);
    return `#${[...values].map(([name, value]) => `${name}=${encoded(value)}`).join("&")}`;
  }

  function change(values) {
    Object.assign(state, values);
    write();
    for (const listener of listeners) listener();
  }

  const write = () => history.replaceState(null, "", written());

  function start() {
    read(location.hash);
    written();
    addEventListener("hashchange", () => {
      read(location.hash);
      for (const listener of listeners) listener();
    });
  }

  const times = () => state.to / model.trained_len;
  return { BASE, state, times, change, write, start, listen: (listener) => listeners.push(listener) };
})();
