// Commands to copy for both extensions, and what to be warned of.
"use strict";
Ropewalk.use = (() => {
  const { byId, make, fill, number, whole } = Ropewalk.dom;
  const { t } = Ropewalk.words;
  const FORGETS = ["window", "blockwise", "chunks", "sinks", "lambda_mask"];
  const ENGINES = { vllm: "vLLM", sglang: "SGLang", "llama.cpp": "llama.cpp" };

  function draw(sides, angles) {
    for (const name of ["a", "b"]) {
      const side = sides[name],
        place = byId(`use-${name}`);
      place.className = `cell side-${name}`;
      const heading = make(
        "h3",
        {},
        make("b", { class: "badge" }, name.toUpperCase()),
        " ",
        make("span", { class: "name" }, side.line),
      );
      fill(place, heading, warnings(side, angles[name]), ...snippets(side));
    }
    fill(byId("use-both"), ...both(sides));
  }

  function snippets({ line, extension, view, own }) {
    const { length, facts } = view,
      flags = Ropewalk.engines.vllmFlags(extension, facts, length);
    return [
      ...titled("command_line", shell(line, extension, length)),
      ...titled("in_python", python(line, extension, length)),
      ...engineRows(extension, facts, length, own),
      ...(flags && !own ? titled("engine_flags", `vllm serve MODEL ${flags}`) : []),
    ];
  }

  // One command that measures both; nothing where one of them changes weights or combines contexts.
  function both({ a, b }) {
    if ([a, b].some(({ extension }) => extension.decoding || extension.surgery.length)) return [];
    const { facts, length } = a.view,
      lengths = `${facts.trained_len},${length}`;
    return titled("compare_both", `ropewalk compare MODEL ${quoted(a.line)} ${quoted(b.line)} --lengths ${lengths}`);
  }

  const titled = (word, text) => (text ? [make("h3", {}, t(word)), snippet(text)] : []);
  const quoted = (line) => (/^[\w:=,.+-]+$/.test(line) ? line : `'${line.replaceAll("'", `'\\''`)}'`);

  function shell(line, { decoding, surgery }, length) {
    const said = quoted(line);
    if (surgery.length) return "";
    if (decoding) return `ropewalk generate MODEL ${said} --contexts FOLDER --question TEXT`;
    return [
      `ropewalk generate MODEL ${said} --to ${length} --prompt-file book.txt`,
      `ropewalk export MODEL ${said} --to ${length} --target vllm -o FOLDER`,
    ].join("\n");
  }

  function python(line, { decoding, surgery }, length) {
    const text = JSON.stringify(line),
      first = "import ropewalk as rw\n\n";
    if (surgery.length) return `${first}model = rw.convert(model, ${text}, target_len=${length})`;
    if (decoding) {
      return `${first}rule = rw.parse(${text}).decoding\nanswer = rw.nbce_generate(model, tokenizer, contexts, question, decoding=rule)`;
    }
    return `${first}rw.extend(model, ${text}, target_len=${length})`;
  }

  function engineRows(extension, facts, length, own) {
    const kinds = own ? null : Ropewalk.engines.kinds(extension, facts, length);
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

  function warnings(side, angles) {
    const words = [...warned(side, angles)].map(([word, values]) => make("li", {}, t(word, values)));
    return make("ul", { class: "warnings" }, words.length ? words : make("li", { class: "none" }, t("no_warning")));
  }

  function* warned({ extension, view, own, needs }, angles) {
    const { facts, length, spans } = view,
      schedule = Ropewalk.extension.theta(extension);
    const times = length / facts.trained_len,
      unseen = angles.filter((pair) => pair.unseen).length;
    const furthest = Ropewalk.reach.furthest(spans, length - 1);
    if (needs === "training") yield ["warn_training"];
    if (needs === "tuning") yield ["warn_tuning"];
    if (extension.decoding) yield ["warn_decoding"];
    if (extension.surgery.length) yield ["warn_surgery"];
    if (extension.positions) yield ["warn_numbering"];
    if (own && extension.frequencies && !extension.instead) yield ["warn_own"];
    if (unseen) yield ["warn_new", { count: whole(unseen) }];
    else if (schedule.name === "rope" && furthest >= facts.trained_len)
      yield ["warn_new_distance", { distance: whole(furthest) }];
    if (changesShort(schedule, extension, facts)) yield ["warn_static"];
    if (schedule.name === "ntk" && schedule.values.factor < 2 * times) {
      yield ["warn_ntk", { times: number(times), double: number(2 * times) }];
    }
    if (FORGETS.includes(view.extension.reach?.name) && !extension.layers.size) yield ["warn_forgets"];
  }

  // Whether a row within the trained length gets other numbers than without the extension.
  function changesShort(schedule, extension, facts) {
    if (["rope", "dynamic", "none", "xpos", "abf", "partial"].includes(schedule.name)) return false;
    const table = Ropewalk.frequencies.tableOf(schedule, facts, 1).invFreq,
      trained = Ropewalk.frequencies.trained(facts);
    return table.some((angle, pair) => angle !== trained[pair]);
  }

  return { draw };
})();
