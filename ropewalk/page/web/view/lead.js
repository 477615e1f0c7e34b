// What the page opens with: the loss by position of held-out texts that the model read, and a sentence of what it shows.
"use strict";
Ropewalk.lead = (() => {
  const { byId, make, fill, number, whole } = Ropewalk.dom;
  const { show, caption, multiples } = Ropewalk.charts;
  const { t } = Ropewalk.words;
  const { example } = Ropewalk.given;
  const { BASE, state } = Ropewalk.state;

  function draw() {
    byId("lead").hidden = !example;
    if (!example) return;
    const drawn = lines(),
      figure = byId("lead-curve"),
      sentence = drawn.map(words).join(t("lead_and"));
    byId("lead-why").hidden = !Object.keys(Ropewalk.given.walks).length;
    byId("lead-why").onclick = () => byId("walk").scrollIntoView();
    byId("lead-sentence").textContent = t("lead_sentence", { sentence });
    byId("lead-about").textContent = t("lead_about", {
      model: example.model,
      texts: example.texts,
      length: whole(example.length),
      window: example.window,
    });
    fill(byId("lead-missing"), ...missing());
    caption(figure, make("b", {}, t("lead_title")), make("span", {}, [...drawn, { accent: "known", name: alone() }].map(key)));
    show(figure, {
      title: `${t("lead_title")}. ${sentence}. ${t("keyboard")}`,
      data: [example.at, example.alone, ...drawn.map(({ line }) => example.losses[line])],
      series: [{ accent: "known", width: 1.5 }, ...drawn.map(({ accent, dash }) => ({ accent, dash, width: 2 }))],
      x: { label: t("position_axis"), tick: Ropewalk.dom.tokens, range: [0, example.length], splits: multiples },
      y: { label: t("loss_axis") },
      marks: [{ x: Ropewalk.data.model.trained_len, label: t("trained_mark") }, ...drawn.flatMap(mark)],
      describe: (index) =>
        t("lead_readout", {
          x: whole(example.at[index]),
          losses: drawn.map(({ line, name }) => `${name} ${number(example.losses[line][index])}`).join(t("comma")),
        }),
    });
  }

  // The unchanged model, and A and B where they were read; the unchanged one is grey unless it is A or B itself.
  function lines() {
    const sides = ["a", "b"].map((side) => [side, state[side].trim()]).filter(([, line]) => example.losses[line]);
    const own = sides.find(([, line]) => line === BASE)?.[0];
    const drawn = [{ line: BASE, accent: own ?? "soft", dash: own ? undefined : [2, 2], name: t("base_model") }];
    for (const [side, line] of sides)
      if (line !== BASE && !drawn.some((other) => other.line === line))
        drawn.push({ line, accent: side, dash: side === "b" ? [6, 3] : undefined, name: line });
    return drawn;
  }

  // What a line is held beside: the same whatever A and B are.
  const alone = () => t("lead_alone", { trained: whole(Ropewalk.data.model.trained_len) });

  function words({ line, name }) {
    const { kind, at, more } = example.found[line];
    const subject = line === BASE ? t("lead_base") : `${name}${t("lead_gap")}`;
    const trained = whole(Ropewalk.data.model.trained_len);
    return t(`lead_${kind}`, { name: subject, at: whole(at), more: number(more), length: whole(example.length), trained });
  }

  const key = ({ accent, dash, name }) => {
    const kind = { soft: "bare", known: "alone" }[accent] ?? `side-${accent}`;
    return make("span", { class: `key ${kind}${dash ? "" : " solid"}` }, name);
  };

  function mark({ line, accent }) {
    const { kind, at } = example.found[line];
    return kind === "breaks" ? [{ x: at, label: t("lead_mark", { at: whole(at) }), accent: line === BASE ? "new" : accent }] : [];
  }

  // At which length was read, where that is not the target; and what A and B have no curve for: refused by the model, or not read.
  function missing() {
    const absent = ["a", "b"].map((side) => state[side].trim()).filter((line) => !example.losses[line] && !isWrong(line));
    const said = state.to === example.length ? [] : [make("span", {}, t("lead_read_at", { length: whole(example.length) }), " ")];
    return [...said, ...[...new Set(absent)].map(reasonOf)];
  }

  // What the field says itself.
  const isWrong = (line) => Ropewalk.lines.problem(line) || Ropewalk.data.find(line, state.to)?.refused;

  function reasonOf(line) {
    const refused = example.refused[line],
      said = refused ? t("refused_as", { said: refused }) : t("lead_unread", { line, command: Ropewalk.use.pageCommand() });
    return make("span", {}, said, " ");
  }

  return { draw, lines };
})();
