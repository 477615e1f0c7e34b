// Elements, and numbers as people read them. Data becomes text nodes only: nothing on the page parses it as HTML.
"use strict";
Ropewalk.Refusal = class extends Error {}; // what a reader is told, in a sentence
Ropewalk.dom = (() => {
  const byId = (id) => document.getElementById(id);

  // make("p", {class: "soft", onclick: ...}, "text", element, ...)
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null) element.setAttribute(name, value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== ""));
    return element;
  }

  const fill = (element, ...children) => element.replaceChildren(...children.flat().filter((child) => child !== null));
  const whole = (value) => Math.round(value).toLocaleString("en-US");

  // Three digits or so: 0.083, 4.1, 26, 1,990.
  function number(value) {
    if (!Number.isFinite(value)) return value > 0 ? "∞" : "–";
    const size = Math.abs(value);
    if (size >= 100 || value === 0) return whole(value);
    if (size < 0.001 && Number.isInteger(Math.log10(size))) return `10⁻${raised(String(-Math.log10(size)))}`;
    if (size < 0.001)
      return value
        .toExponential(1)
        .replace("e-", " × 10⁻")
        .replace(/⁻(\d+)$/, (_, n) => `⁻${raised(n)}`);
    return String(Number(value.toPrecision(size >= 10 ? 3 : size >= 1 ? 3 : 2)));
  }

  const raised = (digits) => [...digits].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");

  // A number of tokens on an axis: 512, 4k, 1M.
  function tokens(value) {
    if (value >= 2 ** 20) return `${Number((value / 2 ** 20).toPrecision(3))}M`;
    return value >= 1024 ? `${Number((value / 1024).toPrecision(3))}k` : String(Math.round(value));
  }

  // The colour of a name in the style sheet, as it is in this mode.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  // MathML as elements: these attributes of it alone, since a policy may forbid styles.
  const MATHML = "http://www.w3.org/1998/Math/MathML",
    KEPT = ["display", "displaystyle", "form", "lspace", "rspace", "stretchy", "width"];
  const set = (math) => copied(new DOMParser().parseFromString(math, "application/xml").documentElement);

  function copied(node) {
    if (node.nodeType === Node.TEXT_NODE) return Ropewalk.words.note(node.data, node.parentNode.localName);
    const element = document.createElementNS(MATHML, node.localName);
    for (const name of KEPT) if (node.hasAttribute(name)) element.setAttribute(name, node.getAttribute(name));
    element.append(...[...node.childNodes].map(copied));
    return element;
  }

  return { set, byId, make, fill, whole, number, tokens, colour };
})();
