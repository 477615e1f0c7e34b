// The one-line notation, as ropewalk/extension/notation.py reads it: name:key=value,...+name...
"use strict";
Ropewalk.notation = (() => {
  const { because, must } = Ropewalk.errors;
  const CONSTANTS = new Map([
    ["true", true],
    ["false", false],
    ["nothing", null],
  ]);
  const UNITS = { "": 1, k: 1024, m: 1024 ** 2 };
  const LONGEST_LINE = 10_000,
    LONGEST_NUMBER = 30,
    DEEPEST = 8;
  const SIGNED_EXPONENT = /[=,[]\s*[\d.]+[eE]\+/g; // in 1e+5 the sign is not a separator
  const FLOAT = /^[+-]?(\d+(_\d+)*\.?(\d+(_\d+)*)?|\.\d+(_\d+)*)(e[+-]?\d+(_\d+)*)?$/i;
  const SPECIAL = /^([+-]?)(inf(inity)?|nan)$/i;

  class Term {
    constructor(name, values) {
      this.name = name;
      this.values = values; // a Map from keys to values
    }
  }

  function read(text) {
    if (text.length > LONGEST_LINE) {
      const remedy = "name a file of an extension, extension.json, instead";
      throw must("extension", `a line of at most ${LONGEST_LINE.toLocaleString("en")} characters`, text.length, remedy);
    }
    const parts = split(text, "+");
    if (!parts.every((part) => part.trim())) {
      const said = Ropewalk.errors.shown(text);
      const sentence = text.trim() ? `a part of the extension ${said} is empty` : `the extension ${said} is empty`;
      throw because(sentence, { remedy: "write name:key=value,...+name..." });
    }
    return parts.map(term);
  }

  function term(text) {
    const [, before, , rest] = text.match(/^([^:]*)(:?)([^]*)$/);
    const name = before.trim();
    if (!/^[A-Za-z_][\p{L}\p{N}_]*(\.[\p{L}\p{N}_]+)?$/u.test(name)) {
      throw must("extension", "written name:key=value,...+name...", text);
    }
    const values = new Map();
    for (const part of text.includes(":") ? split(rest, ",") : []) {
      const place = part.indexOf("=");
      const key = part.slice(0, Math.max(place, 0)).trim(),
        content = part.slice(place + 1).trim();
      if (place < 0 || !key || !content) throw must(`parameter of ${name}`, "written key=value", part);
      if (values.has(key)) throw because(`${name} has ${key} twice in ${Ropewalk.errors.shown(text)}`);
      values.set(key, value(content));
    }
    return new Term(name, values);
  }

  // One value: a number, a constant, a list, a nested term, or the word itself.
  function value(text) {
    if (CONSTANTS.has(text)) return CONSTANTS.get(text);
    if (text.startsWith("[") && text.endsWith("]")) {
      const inside = text.slice(1, -1);
      return inside.trim() ? split(inside, ",").map((part) => value(part.trim())) : [];
    }
    if (text.startsWith("(") && text.endsWith(")")) return term(text.slice(1, -1));
    return number(text);
  }

  function number(text) {
    if (/^[+-]?\d+[km]?$/i.test(text)) return length(text);
    if (FLOAT.test(text)) return new Ropewalk.Float(Number(text.replaceAll("_", "")));
    const special = text.match(SPECIAL);
    if (!special) return text;
    return new Ropewalk.Float(/^n/i.test(special[2]) ? NaN : special[1] === "-" ? -Infinity : Infinity);
  }

  // A whole number, or one in units: 512, 32k, 1m.
  function length(text, field = "length") {
    const parts = text.trim().match(/^([+-]?\d+)([km]?)$/i);
    if (!parts || text.length > LONGEST_NUMBER) throw must(field, "a whole number such as 512, 32k or 1m", text);
    const exact = BigInt(parts[1].replace("+", "")) * BigInt(UNITS[parts[2].toLowerCase()]);
    return Number.isSafeInteger(Number(exact)) ? Number(exact) : exact;
  }

  // Parts between separators outside brackets; the sign of an exponent (1e+5) is not a separator.
  function split(text, separator) {
    const parts = [];
    const signs = new Set([...text.matchAll(SIGNED_EXPONENT)].map((found) => found.index + found[0].length - 1));
    let depth = 0,
      start = 0;
    for (let place = 0; place < text.length && depth >= 0; place++) {
      const character = text[place];
      depth += "([".includes(character) - ")]".includes(character);
      if (depth > DEEPEST) throw must("extension", `nested at most ${DEEPEST} deep`, text.slice(0, 80));
      if (character === separator && depth === 0 && !signs.has(place)) {
        parts.push(text.slice(start, place));
        start = place + 1;
      }
    }
    if (depth) throw must("extension", "written with matching brackets", text);
    return [...parts, text.slice(start)];
  }

  return { read, length, Term };
})();
