// Refusals in the sentences of ropewalk/errors.py: field, rule, value, remedy; a wrong name with the nearest known one.
"use strict";
const Ropewalk = {};

Ropewalk.Refusal = class extends Error {};

// A number that was written with a fraction or an exponent. A plain number here is a whole one, as in Python.
Ropewalk.Float = class {
  constructor(value) {
    this.value = value;
  }
};

Ropewalk.errors = (() => {
  const LONGEST = 400; // characters of a value in a message

  function because(sentence, { known = [], remedy = "" } = {}) {
    const parts = [sentence];
    if (known.length) parts.push(`known: ${known.join(", ")}`);
    if (remedy) parts.push(remedy);
    return new Ropewalk.Refusal(parts.join("; "));
  }

  function must(field, rule, got, remedy = "") {
    return because(`${field} must be ${rule}, got ${shown(got)}`, { remedy });
  }

  function unknown(kind, name, known, owner = "", remedy = "") {
    let sentence = owner ? `${owner} has no ${kind} ${shown(name)}` : `there is no ${kind} ${shown(name)}`;
    const [close] = closest(name, known, 1);
    sentence += close === undefined ? "." : `; did you mean ${shown(close)}?`;
    if (known.length) sentence += ` ${owner ? "It has" : "Known"}: ${known.join(", ")}`;
    else sentence += " It has none";
    return new Ropewalk.Refusal(remedy ? `${sentence}; ${remedy}` : sentence);
  }

  function shown(value) {
    const text = repr(value);
    return text.length <= LONGEST ? text : `${text.slice(0, LONGEST)} ...`;
  }

  // A value as Python writes it.
  function repr(value) {
    if (value === null || value === undefined) return "None";
    if (value === true) return "True";
    if (value === false) return "False";
    if (value instanceof Ropewalk.Float) return fraction(value.value);
    if (Array.isArray(value)) return `(${value.map(repr).join(", ")}${value.length === 1 ? "," : ""})`;
    if (value instanceof Ropewalk.notation.Term) return term(value);
    return typeof value === "string" ? quoted(value) : String(value);
  }

  function term({ name, values }) {
    const stated = [...values].map(([key, value]) => `${key}=${repr(value)}`);
    return `(${[name, ...(stated.length ? [stated.join(",")] : [])].join(":")})`;
  }

  function quoted(text) {
    const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
    const escapes = { "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", [mark]: `\\${mark}` };
    return mark + [...text].map((character) => escapes[character] ?? character).join("") + mark;
  }

  // repr of a float: 4.0, 0.001, 1e-05, 1e+16.
  function fraction(value) {
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e16)) return exponent(value.toExponential());
    return Number.isInteger(value) ? value.toFixed(1) : String(value);
  }

  function exponent(text) {
    return text.replace(/e([+-])(\d)$/, "e$10$2");
  }

  // The format %g: six digits at most.
  function short(value) {
    const [digits, power] = value.toExponential(5).split("e");
    const trimmed = digits.replace(/\.?0+$/, "");
    if (value !== 0 && (power < -4 || power >= 6)) return exponent(`${trimmed}e${power}`);
    return String(Number(value.toPrecision(6)));
  }

  // The known names most like a name: by the share of characters in common blocks, as Python's difflib has it.
  function closest(name, known, count = 3) {
    const scored = known.map((other) => [likeness(other, String(name)), other]).filter(([score]) => score >= 0.6);
    scored.sort((one, two) => two[0] - one[0] || (two[1] > one[1] ? 1 : -1));
    return scored.slice(0, count).map(([, other]) => other);
  }

  function likeness(one, two) {
    return one.length + two.length ? (2 * matching(one, two)) / (one.length + two.length) : 1;
  }

  // The longest common block, and what matches on either side of it.
  function matching(one, two) {
    const [start, at, size] = longestBlock(one, two);
    if (!size) return 0;
    const before = matching(one.slice(0, start), two.slice(0, at));
    return size + before + matching(one.slice(start + size), two.slice(at + size));
  }

  function longestBlock(one, two) {
    let best = [0, 0, 0],
      lengths = [];
    for (let i = 0; i < one.length; i++) {
      const row = [];
      for (let j = 0; j < two.length; j++) {
        if (one[i] !== two[j]) continue;
        row[j] = (lengths[j - 1] ?? 0) + 1;
        if (row[j] > best[2]) best = [i - row[j] + 1, j - row[j] + 1, row[j]];
      }
      lengths = row;
    }
    return best;
  }

  return { because, must, unknown, shown, fraction, short, closest };
})();
