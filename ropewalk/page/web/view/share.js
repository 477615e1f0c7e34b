// What is shown, to pass on: a link that holds the state, and a figure as a picture with its heading.
"use strict";
Ropewalk.share = (() => {
  const { byId, make, colour, whole } = Ropewalk.dom;
  const { t } = Ropewalk.words;
  const FONT = "system-ui, sans-serif",
    EDGE = 16, // of a picture, in pixels
    LINE = 22,
    TEXT = 19,
    SMALL = 15,
    KEY = 22;
  const HEADING = `600 15px ${FONT}`,
    BODY = `13px ${FONT}`,
    FOOT = `11px ${FONT}`;
  const DASHES = { dashed: [6, 3], dotted: [2, 2] }; // as charts draw what the page's key shows

  let lines = {}; // that the figures draw, by side

  function start() {
    byId("share").addEventListener("click", async () => {
      await Ropewalk.use.copy(location.href);
      byId("share").textContent = t("copied");
      setTimeout(() => (byId("share").textContent = t("share_link")), 1500);
    });
  }

  const button = (figure) =>
    make("button", { type: "button", class: "small save", title: t("share_picture"), onclick: () => save(figure) }, "PNG");

  // A section that is a figure as a whole has its button before its heading.
  function offer(section) {
    const head = section.querySelector("header");
    if (!head.querySelector(".save")) head.prepend(button(section));
    head.querySelector(".save").title = t("share_picture");
  }

  // A page from a file may offer data as a download, and needs nothing else for it.
  async function save(figure) {
    const link = make("a", { href: (await picture(figure)).toDataURL("image/png"), download: `${nameOf(figure)}.png` });
    document.body.append(link);
    link.click();
    link.remove();
  }

  // The sides that a figure draws: both, or the one of its name.
  const sidesOf = (id) => Object.entries(lines).filter(([side]) => !/-[ab]$/.test(id) || id.endsWith(`-${side}`));

  // The figure and its lines, as far as they may stand in the name of a file.
  function nameOf({ id }) {
    const own = { "lead-curve": () => Ropewalk.lead.lines(), walk: () => [{ line: Ropewalk.state.state.step }] }[id];
    const shown = own?.() ?? sidesOf(id).map(([, line]) => ({ line }));
    return ["ropewalk", id, ...shown.map(({ line }) => line)].join("-").replace(/[^\w.+=,-]+/g, "-").slice(0, 120);
  }

  // Elements that are no canvas, as an image: with the styles of the page, and its colours in this mode.
  async function imaged(element) {
    const { width, height } = element.getBoundingClientRect(),
      { font, fontSize, lineHeight, color } = getComputedStyle(element),
      styles = [...document.styleSheets].flatMap(({ cssRules }) => [...cssRules].map(({ cssText }) => cssText)).join("\n"),
      names = [...new Set(styles.match(/--[\w-]+(?=:)/g))].map((name) => name.slice(2)),
      colours = names.filter(colour).map((name) => `--${name}: ${colour(name)}`);
    const holder = make("div", {}, element.cloneNode(true)),
      text = (node) => new XMLSerializer().serializeToString(node),
      style = [`font: ${font}`, `line-height: ${parseFloat(lineHeight) / parseFloat(fontSize)}`, `color: ${color}`, `width: ${width}px`, ...colours].join("; ").replaceAll('"', "'");
    const inside = text(holder).replace(/^<div/, `<div style="${style}"`),
      size = `width="${width}" height="${height}"`,
      svg = `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${text(make("style", {}, styles))}<foreignObject ${size}>${inside}</foreignObject></svg>`;
    const image = make("img", { src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}` });
    await image.decode();
    return image;
  }

  // The heading, what is told of it, the key, the drawing as it is on the screen, and where it is from.
  async function picture(figure) {
    const part = figure.querySelector("canvas, [data-drawn]"),
      drawn = part.tagName === "CANVAS" ? part : await imaged(part),
      shown = part.getBoundingClientRect(),
      ratio = Math.max(devicePixelRatio || 1, 2);
    const told = (tag) => [...figure.querySelectorAll(`${tag}[data-told]`)].map((element) => element.textContent);
    const heading = figure.id === "lead-curve" ? [byId("lead-sentence").textContent] : told("h3");
    const caption = [...figure.querySelectorAll("figcaption b")].map((part) => part.textContent).join(" ");
    const wide = shown.width + 2 * EDGE,
      lines = wrapped([...heading, caption], wide - 2 * EDGE, HEADING),
      body = wrapped(told("p"), wide - 2 * EDGE, BODY),
      foot = wrapped([source(figure)], wide - 2 * EDGE, FOOT),
      keys = [...figure.querySelectorAll("figcaption .key")],
      high = shown.height + (lines.length + (keys.length ? 1 : 0)) * LINE + body.length * TEXT + foot.length * SMALL + 6 + 2 * EDGE;
    const canvas = make("canvas", { width: Math.round(wide * ratio), height: Math.round(high * ratio) }),
      context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.fillStyle = colour("sheet");
    context.fillRect(0, 0, wide, high);
    let y = EDGE;
    const write = (text, x, name, font) => {
      context.fillStyle = colour(name);
      context.font = font;
      context.fillText(text, x, y + 14);
    };
    for (const line of lines) (write(line, EDGE, "ink", HEADING), (y += LINE));
    for (const line of body) (write(line, EDGE, "ink", BODY), (y += TEXT));
    if (keys.length) (writeKeys(context, keys, y), (y += LINE));
    context.drawImage(drawn, EDGE, y, shown.width, shown.height);
    y += shown.height + 6;
    for (const line of foot) (write(line, EDGE, "soft", FOOT), (y += SMALL));
    return canvas;
  }

  // The model, and how many texts it read for this figure, or what A and B are at which length.
  function source({ id }) {
    const { example } = Ropewalk.given;
    const read = { texts: example?.texts, length: example && whole(example.length) };
    const sides = sidesOf(id).map(([side, line]) => `${side.toUpperCase()}: ${line}`);
    const own = { "lead-curve": [t("read_texts", read)], lookup: [...sides, t("read_texts", read)], walk: [] }[id];
    const drawn = own ?? [...sides, byId("to-shown").textContent];
    return ["Ropewalk", ...drawn, byId("model-summary").textContent].join(" · ");
  }

  function writeKeys(context, keys, y) {
    let x = EDGE;
    context.font = `13px ${FONT}`;
    for (const key of keys) {
      context.strokeStyle = getComputedStyle(key).getPropertyValue("--accent").trim();
      context.lineWidth = 2;
      context.setLineDash(DASHES[getComputedStyle(key, "::before").borderTopStyle] ?? []);
      context.beginPath();
      context.moveTo(x, y + 9);
      context.lineTo(x + KEY, y + 9);
      context.stroke();
      context.fillStyle = colour("ink");
      context.fillText(key.textContent, x + KEY + 6, y + 14);
      x += KEY + 24 + context.measureText(key.textContent).width;
    }
  }

  // Texts in lines that fit; a Chinese sentence may break anywhere but before a sign that closes something.
  function wrapped(texts, wide, font) {
    const context = make("canvas").getContext("2d"),
      lines = [];
    context.font = font;
    for (const text of texts) {
      let line = "";
      for (const word of text.match(/(?:[\u2e80-\uffef]|[^\s\u2e80-\uffef]+)[，。；：、）”]*\s*/g) ?? []) {
        if (line && context.measureText(line + word).width > wide) (lines.push(line), (line = ""));
        line += word;
      }
      if (line) lines.push(line);
    }
    return lines;
  }

  return { source, start, named: (drawn) => (lines = drawn), button, offer, picture };
})();
