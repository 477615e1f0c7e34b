// What a reader types: whether its names and parameters exist, by the catalogue; a server says that itself.
"use strict";
Ropewalk.lines = (() => {
  const { catalogue, find, live } = Ropewalk.data;
  const { t } = Ropewalk.words;
  const INSTEAD = "instead", // a term that is no method
    FILE = ".py"; // ends the name of a method in a file: not in the catalogue
  const OPEN = "([",
    CLOSING = ")]";
  const EXPONENT = /[=,[]\s*[\d.]+[eE]$/; // in 1e+5 the sign separates nothing

  // What stands between signs outside brackets.
  function split(text, sign) {
    const parts = [""];
    let depth = 0;
    for (const letter of text) {
      if (OPEN.includes(letter)) depth++;
      if (CLOSING.includes(letter)) depth--;
      const last = parts.at(-1);
      if (letter === sign && !depth && !EXPONENT.test(last)) parts.push("");
      else parts[parts.length - 1] = last + letter;
    }
    return parts;
  }

  // Letters to add, remove or replace between two words.
  function edits(one, other) {
    let row = Array.from({ length: other.length + 1 }, (_, index) => index);
    for (let i = 1; i <= one.length; i++) {
      const next = [i];
      for (let j = 1; j <= other.length; j++)
        next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (one[i - 1] === other[j - 1] ? 0 : 1)));
      row = next;
    }
    return row.at(-1);
  }

  // The word that is meant, if one is as near as a third of its letters.
  function closest(word, known) {
    const [best] = known.map((one) => [edits(word, one), one]).sort(([one], [other]) => one - other);
    return best && best[0] <= Math.max(1, Math.floor(best[1].length / 3)) ? best[1] : null;
  }

  function pageOf(name) {
    const key = Object.keys(catalogue).find((one) => one === name) ?? Object.keys(catalogue).find((one) => one.endsWith(`.${name}`));
    return key && catalogue[key];
  }

  function problemOf(term) {
    const place = term.indexOf(":"),
      name = (place < 0 ? term : term.slice(0, place)).trim();
    if (!name) return t("unreadable_line");
    if (name === INSTEAD || name.endsWith(FILE)) return null;
    const page = pageOf(name);
    if (!page) {
      const close = closest(name, Object.keys(catalogue).flatMap((key) => [key, key.slice(key.indexOf(".") + 1)]));
      return close ? t("no_method_close", { name, close }) : t("no_method", { name });
    }
    for (const part of place < 0 ? [] : split(term.slice(place + 1), ",")) {
      const at = part.indexOf("="),
        key = part.slice(0, at).trim();
      if (at < 1 || !part.slice(at + 1).trim()) return t("unreadable_line");
      if (page.takes.includes(key)) continue;
      const close = closest(key, page.takes);
      if (close) return t("no_parameter_close", { name, key, close });
      return page.takes.length ? t("no_parameter", { name, key, known: page.takes.join(", ") }) : t("no_parameters", { name, key });
    }
    return null;
  }

  // A sentence that says what is wrong with a line; nothing where its names exist, or a server draws it.
  function problem(line) {
    if (live) return null;
    return split(line, "+").map(problemOf).find(Boolean) ?? null;
  }

  // Whether a link may hold it: it is drawn, or would be by a page that has it.
  function isSound(line, length) {
    const drawing = find(line, length);
    return drawing ? !live || !drawing.refused : !live && !problem(line);
  }

  return { problem, isSound };
})();
