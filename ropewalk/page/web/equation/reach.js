// Which keys a query sees, and at which effective distance. One entry per file of ropewalk/methods/reach/.
// spans(values) lists, nearest first: keys start(i) <= j < stop(i), seen as if i were at qAt(i) and j at kAt(j).
"use strict";
Ropewalk.methods.reach = (() => {
  const { must } = Ropewalk.errors;
  const itself = (position) => position;
  const always = (value) => () => value;
  const after = (i) => i + 1;
  const before = (window) => (i) => i - window + 1;
  const last = (window) => ({ start: (i) => i - window + 1, stop: after, qAt: itself, kAt: itself });
  const div = (value, by) => Math.floor(value / by);
  // The sinks are the first keys, as long as they have not yet to be part of the window.
  const first = (count, window) => (i) => Math.min(before(window)(i), count);

  function requireTrained(name, distance, facts, largest) {
    if (distance <= largest) return;
    const rule = `at most ${largest} for a model trained on ${facts.trained_len} tokens, which knows no larger distance`;
    const remedy = "a quarter to a half of the trained length works best; or add a schedule such as yarn";
    throw must(name, rule, distance, remedy);
  }
  // Beyond the window, groups of keys share a position.
  const grouped = (window, group) => ({
    qAt: (i) => div(i, group) + window - div(window, group),
    kAt: (j) => div(j, group),
  });
  const below = ({ window }, facts) => requireTrained("window", window, facts, facts.trained_len - 1);

  const methods = {
    causal: { spans: () => [{ start: always(0), stop: after, qAt: itself, kAt: itself }] },
    window: { spans: ({ window }) => [last(window)] },
    blockwise: {
      spans: ({ block }) => [
        { start: (i) => (div(i, block / 2) - 1) * (block / 2), stop: after, qAt: itself, kAt: itself },
      ],
    },
    chunks: { spans: ({ chunk }) => [{ start: (i) => div(i, chunk) * chunk, stop: after, qAt: itself, kAt: itself }] },
    sinks: {
      checkAgainst({ window, n_sink }, facts) {
        requireTrained("n_sink + window", n_sink + window, facts, facts.trained_len);
      },
      spans: ({ window, n_sink }) => [
        last(window),
        { start: always(0), stop: first(n_sink, window), qAt: (i) => Math.min(i, n_sink + window - 1), kAt: itself },
      ],
    },
    lambda_mask: {
      checkAgainst({ window, ceiling }, facts) {
        requireTrained("window", window, facts, facts.trained_len);
        requireTrained("ceiling", ceiling ?? window, facts, facts.trained_len);
      },
      spans: ({ window, n_sink, ceiling }) => [
        last(window),
        { start: always(0), stop: first(n_sink, window), qAt: always(ceiling ?? window), kAt: always(0) },
      ],
    },
    rerope: {
      checkAgainst: below,
      spans: ({ window }) => [
        last(window),
        { start: always(0), stop: before(window), qAt: always(window), kAt: always(0) },
      ],
    },
    leaky_rerope: {
      checkAgainst: below,
      spans: ({ window, leak }) => [
        last(window),
        { start: always(0), stop: before(window), qAt: (i) => window + (i - window) / leak, kAt: (j) => j / leak },
      ],
    },
    rerope_by_parts: {
      check({ low_turns, high_turns }) {
        if (low_turns >= high_turns) throw must("low_turns", `below high_turns (${Ropewalk.errors.short(high_turns)})`, low_turns);
      },
      checkAgainst: below,
      spans({ window, leak, low_turns, high_turns }) {
        const keep = (turns) => Math.min(Math.max((turns - low_turns) / (high_turns - low_turns), 0), 1);
        return [
          last(window),
          {
            start: always(0),
            stop: before(window),
            qAt: (i) => window + (i - window) / leak,
            kAt: (j) => j / leak,
            ofPair: (i, j, turns, pair) => window + ((1 - keep(turns[pair])) / leak) * (i - j - window),
          },
        ];
      },
    },
    self_extend: {
      checkAgainst: below,
      spans: ({ window, group }) => [
        last(window),
        { start: always(0), stop: before(window), ...grouped(window, group) },
      ],
    },
    dpe: {
      check({ groups }) {
        if (!groups.length) throw must("groups", "one size for each band of pairs", groups);
      },
      checkAgainst(values, facts) {
        below(values, facts);
        const pairs = Ropewalk.facts.rotating(facts) / 2,
          bands = values.groups.length;
        const remedy = "name fewer bands; two neighbours may become one";
        if (bands > pairs) throw must("groups", `at most ${pairs}, one for each pair`, bands, remedy);
      },
      spans({ window, groups }) {
        const bands = groups.map((group) => grouped(window, group));
        const ofPair = (i, j, turns, pair) => {
          const { qAt, kAt } = bands[div(pair * bands.length, turns.length)];
          return qAt(i) - kAt(j);
        };
        const finest = grouped(window, Math.min(...groups));
        return [last(window), { start: always(0), stop: before(window), ...finest, ofPair }];
      },
    },
    dual_chunk: {
      check({ chunk, local }) {
        if (local >= chunk) throw must("local", `below chunk (${chunk})`, local);
      },
      checkAgainst: ({ chunk }, facts) => requireTrained("chunk", chunk, facts, facts.trained_len - 1),
      spans({ chunk, local }) {
        const size = chunk - local,
          kAt = (j) => j % size;
        const here = (i) => div(i, size) * size,
          previous = (i) => (div(i, size) - 1) * size;
        return [
          { start: here, stop: after, qAt: (i) => i % size, kAt },
          { start: previous, stop: here, qAt: (i) => Math.min((i % size) + size, chunk), kAt },
          { start: always(0), stop: previous, qAt: always(chunk), kAt },
        ];
      },
    },
    string: {
      check({ shift, local }) {
        if (local >= shift) throw must("local", `below shift (${shift})`, local);
      },
      checkAgainst: ({ shift }, facts) => requireTrained("shift", shift, facts, facts.trained_len),
      spans: ({ shift, local }) => [
        last(shift),
        { start: always(0), stop: before(shift), qAt: (i) => i - shift + local, kAt: itself },
      ],
    },
  };

  const spansOf = (spec) => methods[spec.name].spans(spec.values);

  // A span's first key and the one after its last, for one query.
  function bounds(span, i) {
    const start = Math.max(span.start(i), 0);
    return [start, Math.max(Math.min(span.stop(i), i + 1), start)];
  }

  // The effective distance of a key; NaN where it is out of reach.
  function distance(spans, i, j) {
    let shown = NaN;
    for (const span of spans) {
      const [start, stop] = bounds(span, i);
      if (start <= j && j < stop) shown = span.qAt(i) - span.kAt(j);
    }
    return shown;
  }

  // The same for a pair, by how often all pairs turn in the trained length: a span may place pairs differently.
  function distanceOfPair(spans, i, j, turns, pair) {
    const span = spans.findLast((one) => bounds(one, i)[0] <= j && j < bounds(one, i)[1]);
    return span?.ofPair ? span.ofPair(i, j, turns, pair) : distance(spans, i, j);
  }

  // The largest effective distance of a pair in a row.
  function furthestOfPair(spans, i, turns, pair) {
    const distances = spans.map((span) => distanceOfPair(spans, i, bounds(span, i)[0], turns, pair));
    return Math.max(0, ...distances.filter((one) => !Number.isNaN(one)));
  }

  // The largest effective distance of a row: that of the first key of a span.
  function furthest(spans, i) {
    const distances = spans.map((span) => distance(spans, i, bounds(span, i)[0]));
    return Math.max(0, ...distances.filter((one) => !Number.isNaN(one)));
  }

  function seesAll(spans, i) {
    const seen = spans.map((span) => bounds(span, i)).map(([start, stop]) => Math.max(stop - start, 0));
    return seen.reduce((total, count) => total + count, 0) === i + 1;
  }

  Ropewalk.reach = { spansOf, bounds, distance, distanceOfPair, furthest, furthestOfPair, seesAll };
  return methods;
})();
