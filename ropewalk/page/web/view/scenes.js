// What the walk draws: dials, one for a pair of dimensions; bars; distances. All numbers are Python's.
"use strict";
Ropewalk.scenes = (() => {
  const { make, number, whole } = Ropewalk.dom;
  const { svg } = Ropewalk.lookup;
  const { t } = Ropewalk.words;
  const TURN = 2 * Math.PI,
    RADIUS = 42,
    CELL = 120,
    ACROSS = 4;

  const point = (angle, radius) => [radius * Math.sin(angle), -radius * Math.cos(angle)].map((n) => n.toFixed(2)).join(" ");

  // A part of a disc between two angles, from the top and with the clock.
  function sector(from, to, name, radius = RADIUS) {
    if (to - from >= TURN - 1e-6) return svg("circle", { class: name, r: radius });
    const large = to - from > Math.PI ? 1 : 0;
    const d = `M 0 0 L ${point(from, radius)} A ${radius} ${radius} 0 ${large} 1 ${point(to, radius)} Z`;
    return svg("path", { class: name, d });
  }

  // dials(walk, line)(position): each pair where the token is, what training has seen of it, and what is new in red.
  function dials(walk, line, training) {
    const rows = Math.ceil(walk.dials.length / ACROSS);
    const groups = walk.dials.map(({ pair, theta, trained }, index) => {
      const hands = svg("g", {}),
        seen = Math.min(trained, 1) * TURN,
        label = svg("text", { y: 57 }, t("walk_pair", { pair })),
        turn = svg("text", { y: 70 }, t("walk_wave", { wave: number(TURN / theta[line]) }));
      const group = svg(
        "g",
        { transform: `translate(${CELL * (index % ACROSS) + CELL / 2} ${130 * Math.floor(index / ACROSS) + 55})` },
        svg("circle", { class: "face", r: RADIUS }),
        training ? svg("g", {}) : sector(0, seen, "seen"),
        hands,
        label,
        turn,
      );
      return { group, hands, seen };
    });
    const picture = svg(
      "svg",
      { class: "dials", viewBox: `0 0 ${CELL * ACROSS} ${130 * rows}`, role: "img", "aria-label": t("walk_dials") },
      ...groups.map(({ group }) => group),
    );
    const at = (position) =>
      groups.forEach(({ hands, seen }, index) => {
        const theta = walk.dials[index].theta[line],
          angle = position * theta,
          isNew = seen < TURN && angle > seen * (1 + 1e-9);
        const swept = training ? [sector(0, Math.min(angle, TURN), "seen")] : [];
        if (isNew && !training) swept.push(sector(seen, Math.min(angle, TURN), "fresh"));
        const hand = (name, to) => svg("line", { class: name, x1: 0, y1: 0, x2: point(to, RADIUS).split(" ")[0], y2: point(to, RADIUS).split(" ")[1] });
        hands.replaceChildren(...swept, hand("before", angle - theta), hand(isNew && !training ? "hand new" : "hand", angle));
      });
    return { picture, at };
  }

  // Shares as bars, which grow to their length.
  function bars(rows) {
    const lines = rows.map(({ label, share, accent }) => {
      const bar = make("i", { class: accent }),
        said = make("b", {}, `${number(100 * share)}%`);
      return { bar, said, share, row: make("tr", {}, make("td", {}, label), make("td", { class: "long" }, bar), make("td", {}, said)) };
    });
    const picture = make("table", { class: "bars" }, make("tbody", {}, lines.map(({ row }) => row)));
    const at = (part) => lines.forEach(({ bar, share }) => (bar.style.width = `${100 * share * part}%`));
    return { picture, at };
  }

  // How far away each key appears to the last token: across the true distance, upwards the effective one.
  function distances(walk, lines) {
    const [wide, high, left, below] = [460, 250, 50, 34];
    const x = (distance) => left + ((wide - left - 8) * distance) / walk.length,
      y = (far) => high - below - ((high - below - 10) * far) / walk.length;
    const text = (at, name, words) => svg("text", { ...at, class: name }, words);
    const paths = lines.map(({ line, accent }) => {
      const points = walk.distances[line].at.toSorted((one, other) => one[0] - other[0]);
      return points.map(([distance, far]) => svg("circle", { class: far >= walk.trained ? "new" : accent, cx: x(distance), cy: y(far), r: 3 }));
    });
    const named = [...lines, { line: t("walk_beyond"), accent: "new" }];
    const names = named.flatMap(({ line, accent }, row) => [
      svg("circle", { class: accent, cx: left + 14, cy: 38 + 16 * row, r: 4 }),
      text({ x: left + 24, y: 42 + 16 * row }, "soft", line),
    ]);
    const limit = y(walk.trained);
    const picture = svg(
      "svg",
      { class: "plane", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": t("distances_title") },
      svg("rect", { class: "seen", x: left, y: limit, width: wide - left - 8, height: high - below - limit }),
      svg("line", { class: "axis", x1: left, x2: wide - 8, y1: high - below, y2: high - below }),
      svg("line", { class: "axis", x1: left, x2: left, y1: 8, y2: high - below }),
      text({ x: wide - 8, y: high - 4, "text-anchor": "end" }, "soft", t("distance_axis")),
      text({ x: left, y: high - 18, "text-anchor": "middle" }, "soft", "0"),
      text({ x: wide - 8, y: high - 20, "text-anchor": "end" }, "soft", whole(walk.length)),
      text({ x: left - 6, y: limit + 4, "text-anchor": "end" }, "soft", whole(walk.trained)),
      text({ x: left + 8, y: 20 }, "soft", t("effective_axis")),
      ...names,
      ...paths.flat(),
    );
    const at = (part) => paths.forEach((points) => points.forEach((point, index) => (point.style.opacity = index / points.length <= part ? 1 : 0)));
    return { picture, at };
  }

  // What each method has and what it takes, as a table.
  function costs(walk) {
    const rows = [
      ["rope", "rope"],
      ["pi", "rope"],
      ["ntk", "rope"],
      ["yarn", "rope"],
      ["streaming", "streaming"],
      ["rerope", "rerope"],
      ["self_extend", "self_extend"],
    ].map(([line, of]) => {
      const { seen, furthest } = walk.distances[of];
      const cells = [whole(seen), whole(furthest), whole(walk.unseen[line]), t(`walk_cost_${line}`)];
      return make("tr", {}, make("th", { scope: "row" }, line), cells.map((cell) => make("td", {}, cell)));
    });
    const head = ["method", "walk_seen", "walk_far", "walk_unseen", "walk_costs"].map((word) => make("th", { scope: "col" }, t(word)));
    const table = make("table", { class: "costs" }, make("thead", {}, make("tr", {}, head)), make("tbody", {}, rows));
    return { picture: make("div", { class: "wide", tabindex: 0, role: "group", "aria-label": t("walk_costs") }, table), at: () => {} };
  }

  return { dials, bars, distances, costs };
})();
