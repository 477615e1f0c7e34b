// Commands to copy for both extensions, and what to be warned of.
"use strict";
Ropewalk.use = (() => {
  const { byId, make, fill, number } = Ropewalk.dom;
  const { t } = Ropewalk.words;
  const { BASE, state } = Ropewalk.state;
  const { find } = Ropewalk.data;
  const { problem } = Ropewalk.lines;
  // As commands take it: a name on the hub, or the model that comes with Ropewalk. A folder's name says nothing elsewhere.
  const { named } = Ropewalk.given,
    MODEL = named === "default" || /^[\w.-]+\/[\w.-]+$/.test(named) ? named : "MODEL";
  const ENGINES = { vllm: "vLLM", sglang: "SGLang", "llama.cpp": "llama.cpp" };

  function draw(sides) {
    for (const name of ["a", "b"]) {
      const side = sides[name],
        place = byId(`use-${name}`);
      place.className = `cell side-${name}`;
      const heading = make(
        "h3",
        {},
        make("b", { class: "badge" }, name.toUpperCase()),
        " ",
        make("span", { class: "name" }, side.wrong?.line ?? side.line),
      );
      const told = side.wrong ? [refusal(side)] : [warnings(side), ...snippets(side)];
      fill(place, heading, ...told);
    }
    fill(byId("use-both"), ...both(sides));
  }

  // No command of a line that is not drawn: why, and which line the figures have in its place.
  const refusal = ({ wrong, line }) =>
    make("ul", { class: "warnings" }, make("li", {}, wrong.said), make("li", { class: "none" }, t("drawn_instead", { line })));

  function snippets({ line, length, way, engines, flags }) {
    if (line === BASE) {
      // nothing to put on the model, and export refuses it
      return [...titled("command_line", `ropewalk generate ${MODEL} ${line} --prompt-file book.txt`), ...engineRows(engines)];
    }
    return [
      ...titled("command_line", shell(line, way, length)),
      ...titled("in_python", python(line, way, length)),
      ...engineRows(engines),
      ...titled("engine_flags", flags && plainVllm(line, length, flags)),
    ];
  }

  // The flags are a Llama's. For another model: the command that prints those of its own config.
  const plainVllm = (line, length, flags) =>
    Ropewalk.given.usual ? `vllm serve MODEL ${flags}` : `ropewalk export ${MODEL} ${quoted(line)} --to ${length} --config-only`;

  // One command that measures both; nothing where one of them changes weights or combines contexts.
  function both({ a, b }) {
    if ([a, b].some(({ way, wrong }) => way !== "attention" || wrong)) return [];
    const lengths = [...new Set([Ropewalk.data.model.trained_len, a.length])].join(",");
    return titled("compare_both", `ropewalk compare ${MODEL} ${quoted(a.line)} ${quoted(b.line)} --lengths ${lengths}`);
  }

  const titled = (word, text) => (text ? [make("h3", {}, t(word)), snippet(text)] : []);
  const quoted = (line) => (/^[\w:=,.+-]+$/.test(line) ? line : `'${line.replaceAll("'", `'\\''`)}'`);

  // What writes a page that has A and B as they are typed, and reads them: without one that is known to be wrong.
  function pageCommand() {
    const { a, b, to } = state,
      right = [...new Set([a.trim(), b.trim()])].filter((line) => line && !problem(line) && !find(line, to)?.refused);
    return ["ropewalk page", MODEL, ...right.map(quoted), "--to", to].join(" ");
  }

  function shell(line, way, length) {
    const said = quoted(line);
    if (way === "surgery") return "";
    if (way === "one_text") return `ropewalk generate ${MODEL} ${said} --prompt-file book.txt`;
    if (way !== "attention") return `ropewalk generate ${MODEL} ${said} --contexts FOLDER --question TEXT`;
    return [
      `ropewalk generate ${MODEL} ${said} --to ${length} --prompt-file book.txt`,
      `ropewalk export ${MODEL} ${said} --to ${length} --target vllm -o FOLDER`,
    ].join("\n");
  }

  function python(line, way, length) {
    const text = JSON.stringify(line),
      first = "import ropewalk as rw\n\n";
    if (way === "surgery") return `${first}model = rw.convert(model, ${text}, target_len=${length})`;
    const used = {
      decoding: "answer = rw.nbce_generate(model, tokenizer, contexts, question, decoding=rule)",
      joined: "tokens = rw.ape_stream(model, tokenizer, contexts, question, decoding=rule)",
      one_text: "tokens = rw.contrast_stream(model, ids, rule)",
    }[way];
    if (used) return `${first}rule = rw.parse(${text}).decoding\n${used}`;
    return `${first}rw.extend(model, ${text}, target_len=${length})`;
  }

  function engineRows(kinds) {
    const rows = Object.entries(ENGINES).map(([engine, name]) => {
      return make("tr", {}, make("td", {}, name), make("td", {}, t(kinds ? kinds[engine] : "own_asked")));
    });
    return [make("h3", {}, t("in_engines")), make("table", { class: "engines" }, make("tbody", {}, rows))];
  }

  function snippet(text) {
    const button = make("button", { type: "button", class: "small" }, t("copy"));
    button.addEventListener("click", async () => {
      await copy(text);
      button.textContent = t("copied");
      setTimeout(() => (button.textContent = t("copy")), 1500);
    });
    return make("div", { class: "snippet" }, make("pre", {}, text), button);
  }

  // A page from a file may not use the clipboard directly in every browser; selecting and copying always works.
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = make("textarea", { class: "hidden" });
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }

  function warnings({ warnings }) {
    const formatted = (values) => Object.fromEntries(Object.entries(values).map(([name, n]) => [name, number(n)]));
    const words = warnings.map(([word, values]) => make("li", {}, t(word, formatted(values))));
    return make("ul", { class: "warnings" }, words.length ? words : make("li", { class: "none" }, t("no_warning")));
  }

  return { draw, pageCommand, quoted, copy };
})();
