// What the live panels share: their frame, figures, and requests whose failures are said beside a button.
"use strict";
Ropewalk.panel = (() => {
  const { make } = Ropewalk.dom;
  const { t } = Ropewalk.words;

  function part(name, ...children) {
    const about = make("p", {}, t(`${name}_about`));
    return make("section", { class: "live-part", "aria-label": t(name) }, make("h3", {}, t(name)), about, ...children);
  }

  function figure(id, kind = "chart") {
    const readout = make("p", { class: "readout", "aria-live": "off" });
    return make("figure", { class: "cell", id }, make("figcaption"), make("div", { class: kind }), readout);
  }

  const badge = (side) => make("b", { class: "badge" }, side.toUpperCase());

  // A button with a line beside it that says how the request went.
  function runner(word, part, live, asking) {
    const said = make("span", { class: "said", id: `${part}-said`, role: "status" });
    const button = make("button", { type: "button" }, t(word));
    button.addEventListener("click", () => attempt(button, said, live, part, asking));
    return make("div", { class: "run" }, button, said);
  }

  // Ask the server about the text, and draw what it answers.
  async function attempt(button, said, live, part, asking) {
    if (!live.text.trim()) return report(said, t("no_text"), true);
    button.disabled = true;
    report(said, t("measuring"));
    try {
      await asking();
      live.rebuild();
    } catch (refused) {
      live[part] = null; // an answer that cannot be drawn is not kept
      report(said, refused instanceof Ropewalk.Refusal ? refused.message : t("strange"), true);
    }
    button.disabled = false;
  }

  function report(said, words, wrong = false) {
    said.className = wrong ? "said wrong" : "said";
    said.textContent = words;
  }

  return { part, figure, badge, runner };
})();
