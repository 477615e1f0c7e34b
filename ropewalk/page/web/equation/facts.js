// The facts of a model, and how far a row stretches it: ropewalk/methods/facts.py.
"use strict";
Ropewalk.facts = (() => {
  const { must } = Ropewalk.errors;
  const DEFAULTS = {
    trained_len: 4096,
    head_dim: 128,
    base: 10000,
    inv_freq: null,
    original_len: null,
    rotary_dim: null,
    heads: 32,
    kv_heads: null,
    layers: 32,
  };
  const WHOLE = ["trained_len", "head_dim", "heads", "layers", "original_len", "rotary_dim", "kv_heads"];

  // The largest numbers that the page draws: a link must not stop the browser.
  const MOST = {
    trained_len: 2 ** 40,
    original_len: 2 ** 40,
    head_dim: 4096,
    rotary_dim: 4096,
    heads: 1024,
    kv_heads: 1024,
    layers: 4096,
  };

  function make(stated) {
    const facts = { ...DEFAULTS, ...stated };
    for (const name of WHOLE) {
      if (facts[name] === null) continue;
      requireWhole(name, facts[name]);
      if (facts[name] > MOST[name])
        throw must(name, `at most ${MOST[name].toLocaleString("en-US")} on this page`, facts[name]);
    }
    for (const name of ["head_dim", "rotary_dim"]) {
      if (facts[name] !== null && facts[name] % 2) throw must(name, "a positive even number", facts[name]);
    }
    if (!(facts.base > 1 && facts.base <= 2 ** 62)) throw must("base", "above 1", new Ropewalk.Float(facts.base));
    if (facts.rotary_dim > facts.head_dim)
      throw must("rotary_dim", `at most head_dim (${facts.head_dim})`, facts.rotary_dim);
    if (facts.heads % (facts.kv_heads ?? facts.heads))
      throw must("kv_heads", `a divisor of heads (${facts.heads})`, facts.kv_heads);
    return facts;
  }

  function requireWhole(name, value) {
    if (!Number.isInteger(value) || value < 1) throw must(name, "a whole number, at least 1", value);
  }

  // d in the papers' formulas: how many dimensions rotate.
  const rotating = (facts) => facts.rotary_dim ?? facts.head_dim;

  // The same model without the schedule that it came with.
  function undone(facts) {
    const fixed = (facts.inv_freq ?? []).map((theta) => theta === 0);
    const plain = fixed.map((still, pair) => (still ? 0 : facts.base ** ((-2 * pair) / rotating(facts))));
    const length = facts.original_len ?? facts.trained_len;
    return { ...facts, trained_len: length, original_len: null, inv_freq: fixed.includes(true) ? plain : null };
  }

  // The factor that a row of this length needs: 1 within the trained length, then one of `steps` values per doubling.
  function stretch(facts, length, steps) {
    if (length <= facts.trained_len) return 1;
    if (steps === null) return length / facts.trained_len;
    let step = Math.max(0, Math.ceil(steps * Math.log2(length / facts.trained_len)) - 1);
    while (Math.floor(facts.trained_len * 2 ** (step / steps)) < length) step += 1; // the whole ends decide
    return 2 ** (step / steps);
  }

  return { make, rotating, undone, stretch, DEFAULTS };
})();
