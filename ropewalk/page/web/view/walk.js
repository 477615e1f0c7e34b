// The walk: ten steps with one token, animated where that is wished, by buttons and by the arrow keys.
"use strict";
Ropewalk.walk = (() => {
  const { byId, make, fill, number, whole } = Ropewalk.dom;
  const { t } = Ropewalk.words;
  const { walks, example, first } = Ropewalk.given;
  const { state, change } = Ropewalk.state;
  const scenes = Ropewalk.scenes;
  const MOVES = 1800, // milliseconds of a movement
    STAYS = 9000; // and of a step while the walk plays
  const STEPS = [
    { word: "number", scene: () => scenes.dials(walk, "rope", true), to: () => 60 },
    { word: "trained", scene: () => scenes.dials(walk, "rope", true), to: () => walk.trained - 1 },
    { word: "new", scene: () => scenes.dials(walk, "rope"), to: () => walk.length - 1 },
    { word: "pi", scene: () => scenes.dials(walk, "pi"), to: () => walk.length - 1 },
    { word: "ntk", scene: () => scenes.dials(walk, "ntk"), to: () => walk.length - 1 },
    { word: "yarn", scene: () => scenes.dials(walk, "yarn"), to: () => walk.length - 1 },
    { word: "focus", scene: focus },
    { word: "window", scene: () => scenes.distances(walk, pairOf("streaming")) },
    { word: "rerope", scene: () => scenes.distances(walk, pairOf("rerope")) },
    { word: "cost", scene: () => scenes.costs(walk) },
  ];
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const NEXT = Object.values(walks)[0]; // of the shortest length beyond training: shown where the target is none
  let walk = walks[first.to] ?? NEXT, // its numbers at a target length, where there are any
    held = null, // where a hand put the token, and the end of that slider
    shown = null, // the step, language and length that are drawn
    frame = 0,
    playing = 0;

  const pairOf = (line) => [
    { line: "rope", accent: "a" },
    { line, accent: "b" },
  ];

  function focus() {
    const { trained, plain, log_n } = walk.focus;
    return scenes.bars([
      { label: t("walk_among", { keys: whole(walk.trained) }), share: trained, accent: "soft" },
      { label: t("walk_among", { keys: whole(walk.length) }), share: plain, accent: "a" },
      { label: t("walk_with_log_n"), share: log_n, accent: "b" },
    ]);
  }

  function draw() {
    byId("walk").hidden = !walk;
    if (!walk) return;
    if (!byId("walk-body").firstChild) build();
    walk = walks[state.to] ?? NEXT;
    byId("walk-within").hidden = walk.length === state.to;
    byId("walk-within").textContent = t("walk_within", { to: whole(state.to), length: whole(walk.length) });
    const key = `${state.step} ${Ropewalk.words.current()} ${walk.length}`;
    if (shown === key) return;
    shown = key;
    const step = STEPS[state.step - 1],
      scene = step.scene();
    byId("walk-count").textContent = `${state.step} / ${STEPS.length}`;
    STEPS.forEach(({ word }, index) => {
      const button = byId("walk-steps").children[index];
      button.title = t(`walk_${word}`);
      button.setAttribute("aria-label", `${index + 1}: ${button.title}`);
      button.setAttribute("aria-current", index + 1 === state.step ? "step" : "false");
    });
    byId("walk-title").textContent = t(`walk_${step.word}`);
    byId("walk-words").textContent = t(`walk_${step.word}_says`, values());
    byId("walk-back").disabled = state.step === 1;
    byId("walk-next").disabled = state.step === STEPS.length;
    for (const [id, word] of [["walk-back", "walk_back"], ["walk-next", "walk_next"]]) byId(id).textContent = t(word);
    sayPlaying();
    Ropewalk.share.offer(byId("walk"));
    const to = step.to?.(),
      slider = make("input", { type: "range", id: "walk-slider", min: 0, max: to, "aria-label": t("walk_slider") });
    slider.addEventListener("input", () => {
      stop();
      cancelAnimationFrame(frame);
      held = { position: Number(slider.value), end: to };
      place(scene, held.position);
    });
    fill(byId("walk-scene"), make("div", { "data-drawn": true }, scene.picture), ...(to === undefined ? [] : [slider]), make("p", { class: "readout", id: "walk-position", "data-told": true }));
    animate(scene, to);
  }

  function build() {
    const button = (id, click) => make("button", { type: "button", id, onclick: click });
    const row = make(
      "div",
      { class: "run" },
      button("walk-back", () => go(-1)),
      button("walk-next", () => go(1)),
      button("walk-play", toggle),
      make("span", { id: "walk-count", class: "said" }),
    );
    const said = make("div", { "aria-live": "polite" }, make("h3", { id: "walk-title", "data-told": true }), make("p", { id: "walk-words", "data-told": true }));
    const jump = (index) => () => {
      stop();
      change({ step: index + 1 });
    };
    const steps = STEPS.map((_, index) => make("button", { type: "button", class: "small", onclick: jump(index) }, index + 1));
    const told = make("div", {}, said, make("p", { id: "walk-within", class: "soft" }), row, make("div", { id: "walk-steps", role: "group" }, ...steps));
    fill(byId("walk-body"), make("div", { class: "two" }, told, make("div", { id: "walk-scene" })));
    byId("walk-body").addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || event.target.closest(".wide, input")) return;
      event.preventDefault();
      go(by);
    });
  }

  function go(by) {
    stop();
    move(by);
  }

  function move(by) {
    const step = Math.min(Math.max(state.step + by, 1), STEPS.length);
    if (step !== state.step) change({ step });
    if (step === STEPS.length) stop();
  }

  function toggle() {
    if (playing) return stop();
    if (state.step === STEPS.length) change({ step: 1 });
    playing = setInterval(() => move(1), STAYS);
    sayPlaying();
  }

  function stop() {
    clearInterval(playing);
    playing = 0;
    sayPlaying();
  }

  const sayPlaying = () => (byId("walk-play").textContent = t(playing ? "walk_pause" : "walk_play"));

  // Move from the beginning to the token; where less motion is wished, the end alone is drawn. What a hand moved stays.
  function animate(scene, to) {
    cancelAnimationFrame(frame);
    if (to <= held?.end) return place(scene, Math.min(held.position, to)); // a shorter text says nothing of a longer one
    const at = (part) => (to === undefined ? scene.at(part) : place(scene, Math.round(to * part)));
    if (still.matches) return at(1);
    const begun = performance.now();
    const next = (now) => {
      const part = Math.min(Math.max((now - begun) / MOVES, 0), 1);
      at(part * part * (3 - 2 * part));
      if (part < 1) frame = requestAnimationFrame(next);
    };
    at(0);
    frame = requestAnimationFrame(next);
  }

  // The token at a position, by the movement or by hand.
  function place(scene, position) {
    scene.at(position);
    byId("walk-slider").value = position;
    byId("walk-position").textContent = t("walk_position", { position: whole(position) });
  }

  // Every number that a step may say.
  function values() {
    const { length, trained, times, focus: shares, distances, parts, unseen, degrees } = walk;
    const base = example?.found.rope;
    return {
      token: whole(length - 1),
      length: whole(length),
      trained: whole(trained),
      last: whole(trained - 1),
      times: number(times),
      beta: number(walk.beta),
      base: whole(walk.base),
      pairs: walk.pairs,
      dims: 2 * walk.pairs,
      fast: number(walk.fast),
      slow: number(walk.slow),
      partial: walk.partial,
      unseen: unseen.rope,
      left: unseen.ntk,
      broken: base?.kind === "breaks" ? t("walk_broken", { at: whole(base.at) }) : "",
      before: number(degrees.rope),
      after: number(degrees.pi),
      ntk_base: whole(walk.ntk_base),
      kept: parts.kept,
      between: parts.between,
      whole: parts.whole,
      temperature: number(walk.temperature),
      plain: number(100 * shares.plain),
      log_n: number(100 * shares.log_n),
      factor: number(shares.factor),
      seen: whole(distances.streaming.seen),
      near: whole(distances.rerope.furthest),
      grouped: whole(distances.self_extend.furthest),
    };
  }

  return { draw, STEPS };
})();
