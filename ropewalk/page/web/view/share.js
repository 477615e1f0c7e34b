// What is shown, to pass on: a link that holds the state, and a figure as a picture with its heading.
"use strict";
Ropewalk.share = (() => {
  const { byId, make, colour } = Ropewalk.dom;
  const { t } = Ropewalk.words;
  const FONT = "system-ui, sans-serif",
    EDGE = 16, // of a picture, in pixels
    LINE = 22;

  function start() {
    byId("share").addEventListener("click", async () => {
      await Ropewalk.use.copy(location.href);
      byId("share").textContent = t("copied");
      setTimeout(() => (byId("share").textContent = t("share_link")), 1500);
    });
  }

  const button = (figure) =>
    make("button", { type: "button", class: "small save", title: t("share_picture"), onclick: () => save(figure) }, "PNG");

  // A page from a file may offer data as a download, and needs nothing else for it.
  function save(figure) {
    const link = make("a", { href: picture(figure).toDataURL("image/png"), download: `ropewalk-${figure.id}.png` });
    document.body.append(link);
    link.click();
    link.remove();
  }

  // The heading, the key, the drawing as it is on the screen, and where it is from.
  function picture(figure) {
    const drawn = figure.querySelector("canvas"),
      shown = drawn.getBoundingClientRect(),
      ratio = Math.max(devicePixelRatio || 1, 2);
    const heading = figure.id === "lead-curve" ? [byId("lead-sentence").textContent] : [];
    const caption = [...figure.querySelectorAll("figcaption b")].map((part) => part.textContent).join(" ");
    const wide = shown.width + 2 * EDGE,
      lines = wrapped([...heading, caption], wide - 2 * EDGE),
      keys = [...figure.querySelectorAll("figcaption .key")],
      high = shown.height + (lines.length + (keys.length ? 1 : 0) + 1) * LINE + 2 * EDGE;
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
    for (const line of lines) (write(line, EDGE, "ink", `600 15px ${FONT}`), (y += LINE));
    if (keys.length) (writeKeys(context, keys, y), (y += LINE));
    context.drawImage(drawn, EDGE, y, shown.width, shown.height);
    y += shown.height + 6;
    write(`Ropewalk · ${byId("model-summary").textContent}`, EDGE, "soft", `11px ${FONT}`);
    return canvas;
  }

  function writeKeys(context, keys, y) {
    let x = EDGE;
    context.font = `13px ${FONT}`;
    for (const key of keys) {
      context.fillStyle = getComputedStyle(key).getPropertyValue("--accent").trim();
      context.fillRect(x, y + 8, 16, 3);
      context.fillStyle = colour("ink");
      context.fillText(key.textContent, x + 22, y + 14);
      x += 40 + context.measureText(key.textContent).width;
    }
  }

  // Texts in lines that fit; a Chinese sentence may break anywhere.
  function wrapped(texts, wide) {
    const context = make("canvas").getContext("2d"),
      lines = [];
    context.font = `600 15px ${FONT}`;
    for (const text of texts) {
      let line = "";
      for (const word of text.match(/[\u2e80-\uffef]|[^\s\u2e80-\uffef]+\s*/g) ?? []) {
        if (line && context.measureText(line + word).width > wide) (lines.push(line), (line = ""));
        line += word;
      }
      if (line) lines.push(line);
    }
    return lines;
  }

  return { start, button, picture };
})();
