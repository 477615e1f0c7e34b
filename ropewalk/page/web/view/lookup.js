// Attention with the tokens under the pointer: of some tokens of the text that was read, the keys with most weight.
"use strict";
Ropewalk.lookup = (() => {
  const { byId, make, fill, number, whole } = Ropewalk.dom;
  const { t } = Ropewalk.words;
  const { example } = Ropewalk.given;
  const { BASE } = Ropewalk.state;
  const SVG = "http://www.w3.org/2000/svg",
    WIDE = 1000,
    HIGH = 110, // of the strip with arcs, in its own units
    AROUND = 4; // tokens beside a key that are shown with it
  const marked = new Map(); // by place: the element of a token of the text
  let chosen = null; // which of the asked tokens

  function draw() {
    byId("lookup").hidden = !example;
    if (!example) return;
    const isNew = !marked.size;
    if (isNew) build();
    Ropewalk.share.offer(byId("lookup"));
    byId("lookup-text").setAttribute("aria-label", t("lookup_text"));
    show(chosen ?? example.queries.length - 1);
    if (isNew) reveal(marked.get(example.queries[chosen]));
  }

  // The token in the middle of its box; the page itself stays where it is.
  function reveal(element) {
    const box = byId("lookup-text");
    box.scrollTop += element.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 2;
  }

  // The whole text once: plain text, with elements for the tokens that are asked and for their keys.
  function build() {
    const asked = new Map(example.queries.map((place, query) => [place, query])),
      keys = new Set(Object.values(example.keys).flatMap((rows) => rows.flatMap(placesOf))),
      parts = [];
    example.tokens.forEach((token, place) => {
      if (!asked.has(place) && !keys.has(place)) return parts.push(token);
      const element = asked.has(place) ? button(token, asked.get(place)) : make("span", {}, token);
      marked.set(place, element);
      parts.push(element);
    });
    fill(byId("lookup-text"), ...parts);
  }

  function button(token, query) {
    const choose = () => show(query);
    const element = make("button", { type: "button", onpointerenter: choose, onfocus: choose, onclick: choose }, token);
    element.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      marked.get(example.queries[Math.min(Math.max(query + by, 0), example.queries.length - 1)]).focus();
    });
    return element;
  }

  const placesOf = (row) => row.filter((_, index) => index % 2 === 0);
  const pairsOf = (row) => placesOf(row).map((place, index) => ({ place, weight: row[2 * index + 1] }));
  // A and B as far as they were read, and the unchanged model where neither is it.
  const sides = () => {
    const own = ["a", "b"].map((side) => [side, Ropewalk.state.state[side].trim()]);
    const shown = own.some(([, line]) => line === BASE) ? own : [...own, ["base", BASE]];
    return shown.filter(([, line]) => example.keys[line]);
  };

  function show(query) {
    chosen = query;
    const place = example.queries[query];
    for (const [at, element] of marked) {
      element.className = at === place ? "asked" : "";
      element.style.background = "";
    }
    const heaviest = new Map(); // by key: the side under which it has most weight, and that weight
    for (const [side, line] of sides())
      for (const { place: at, weight } of pairsOf(example.keys[line][query]))
        if (at !== place && weight > (heaviest.get(at)?.weight ?? 0)) heaviest.set(at, { side, weight });
    for (const [at, { side, weight }] of heaviest) shade(marked.get(at), side, weight);
    const full = Math.max(...sides().map(([, line]) => example.keys[line][query][1])); // the weight of the longest bar
    const shown = sides().map(([side, line]) => listed(side, line, query, full));
    fill(byId("lookup-keys"), ...shown);
    byId("lookup-keys").className = shown.length > 2 ? "three" : "two";
    byId("lookup-said").textContent = t("lookup_said", { token: quoted(place), place: whole(place) });
  }

  function shade(element, side, weight) {
    element.style.background = `color-mix(in srgb, var(--${side === "base" ? "soft" : side}) ${Math.round(20 + 50 * Math.sqrt(weight))}%, transparent)`;
  }

  const quoted = (place) => JSON.stringify(example.tokens[place]).replace(/^"|"$/g, "");

  // A side: its keys as arcs over the whole text, and as a list with their neighbours, weight and distance.
  function listed(side, line, query, full) {
    const place = example.queries[query],
      pairs = pairsOf(example.keys[line][query]),
      all = pairs.reduce((sum, { weight }) => sum + weight, 0),
      strip = arcs(place, pairs),
      drawn = strip.querySelectorAll(".arc");
    const rows = pairs.map(({ place: key, weight }, index) => {
      const bar = make("i", {});
      bar.style.width = `${Math.round((100 * weight) / full)}%`;
      const beside = (from, to) => example.tokens.slice(Math.max(from, 0), to).join("").replace(/\s+/g, " ");
      const light = (is) => () => [marked.get(key), drawn[index]].forEach(({ classList }) => classList.toggle("pointed", is));
      return make(
        "tr",
        { onpointerenter: light(true), onpointerleave: light(false) },
        make("td", { class: "bar" }, bar, make("span", {}, `${number(100 * weight)}%`)),
        make("td", { class: "far" }, place === key ? t("lookup_itself") : t("lookup_back", { distance: whole(place - key) })),
        make("td", { class: "word" }, beside(key - AROUND, key), make("b", {}, quoted(key)), beside(key + 1, key + AROUND)),
      );
    });
    return make(
      "div",
      { class: `cell side-${side}` },
      make("h3", {}, ...nameOf(side, line)),
      strip,
      make("p", { class: "soft" }, t("lookup_share", { share: number(100 * all), count: pairs.length })),
      make("table", { class: "keys" }, make("tbody", {}, rows)),
    );
  }

  const nameOf = (side, line) =>
    side === "base"
      ? [make("span", { class: "name" }, t("base_model"))]
      : [make("b", { class: "badge" }, side.toUpperCase()), " ", make("span", { class: "name" }, line)];

  function svg(tag, attributes, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  // The text as a line: what lies within the trained length before the token is darker, and arcs go to its keys.
  function arcs(place, pairs) {
    const x = (at) => (WIDE * at) / example.length,
      ground = HIGH - 8,
      trained = Ropewalk.data.model.trained_len;
    const curve = ({ place: key, weight }) => {
      const [from, to] = [x(key), x(place)],
        high = Math.max(4, Math.min(ground - 4, (to - from) * 0.5));
      return svg("path", {
        class: "arc",
        d: `M ${from} ${ground} C ${from} ${ground - high * 1.3} ${to} ${ground - high * 1.3} ${to} ${ground}`,
        "stroke-width": 1 + 9 * Math.sqrt(weight),
      });
    };
    return svg(
      "svg",
      { class: "arcs", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": t("lookup_arcs") },
      svg("line", { class: "ground", x1: 0, x2: WIDE, y1: ground, y2: ground }),
      svg("line", { class: "known", x1: x(Math.max(0, place - trained)), x2: x(place), y1: ground, y2: ground }),
      ...pairs.map(curve),
      svg("circle", { class: "token", cx: x(place), cy: ground, r: 6 }),
    );
  }

  return { draw, svg };
})();
