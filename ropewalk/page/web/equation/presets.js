// Papers and systems as compositions, and how they derive their values from lengths: ropewalk/extension/presets/.
// A preset gets its parameters by name and gives an extension.
"use strict";
Ropewalk.presets = (() => {
  const { because, must, short } = Ropewalk.errors;
  const MOST_LAYERS = 10_000;
  const float = (value) => new Ropewalk.Float(value);
  const number = (value) => (value instanceof Ropewalk.Float ? value.value : value);
  const is = (value) => (value ?? null) !== null;
  const build = (slot, name, values = {}) => Ropewalk.record.build(slot, name, values);
  const make = (filled) => Ropewalk.extension.make(filled);
  const schedule = (name, values) => build("frequencies", name, values);
  const scale = (name, values) => build("scales", name, values);
  const ofReach = (name, values) => make({ reach: build("reach", name, values) });
  const unrotated = (bias) => make({ frequencies: schedule("none"), biases: [build("biases", bias)] });

  function requireLengths(trained, target) {
    Ropewalk.extension.requireWhole("trained_len", trained);
    Ropewalk.extension.requireWhole("target_len", target);
  }

  // The factor, by default target length over trained length.
  function stretch(preset, { factor, trained_len, target_len }) {
    if (is(factor)) return factor;
    if (!is(trained_len) || !is(target_len)) {
      const lengths = is(trained_len) ? "target_len, the target length (--to)" : "trained_len and target_len";
      throw because(`${preset} needs factor`, { remedy: `write ${preset}:factor=..., or give ${lengths}` });
    }
    requireLengths(trained_len, target_len);
    if (target_len < trained_len) throw must("target_len", `at least trained_len (${trained_len})`, target_len);
    return float(target_len / trained_len);
  }

  // The value, by default a share of the trained length minus `less`.
  function shareOf(preset, name, value, trained, share = 1, less = 0) {
    if (is(value)) return value;
    if (!is(trained))
      throw because(`${preset} needs ${name}`, { remedy: `write ${preset}:${name}=..., or give trained_len` });
    requireLengths(trained, null);
    return Math.max(Math.trunc(share * trained) - less, 1);
  }

  // The value, by default a multiple of the target length.
  function targetOr(preset, name, value, target, times = 1) {
    if (is(value)) return value;
    if (!is(target)) throw because(`${preset} needs ${name}`, { remedy: "give target_len (--to)" });
    requireLengths(null, target);
    return times * target;
  }

  // Tokens per step beyond the window, so that the longest text spans this share of the trained length.
  function squeeze(window, share, trained, target) {
    if (!is(trained) || !is(target)) return null;
    requireLengths(trained, target);
    const longest = share * trained;
    if (longest <= number(window)) {
      throw must("window", `below ${short(longest)}, the distance that the longest text is compressed to`, window);
    }
    return Math.max((target - number(window)) / (longest - number(window)), 1);
  }

  // The value, by default a share of the trained length; of a short one 16 tokens, or half of it.
  function shareOrFew(preset, name, value, trained, share) {
    const size = shareOf(preset, name, value, trained, share);
    return is(value) ? size : Math.max(size, Math.min(16, Math.floor(trained / 2)));
  }

  // A reach that hides keys in training.
  function hiding(kind, name, size, trained) {
    const near = build("reach", name, { [kind]: size });
    if (is(trained) && number(size) >= trained) {
      const rule = `below the trained length (${trained}), or nothing is hidden in training`;
      throw must(kind, rule, size, `state a smaller ${kind}, or use more layers`);
    }
    return near;
  }

  // Full layers without rotation from `first` on, `every` so many layers, and others between them.
  function interleaved(near, scales, layers, first, every) {
    if (layers > MOST_LAYERS) throw must("layers", `at most ${MOST_LAYERS.toLocaleString("en")}`, layers);
    const places = [];
    for (let layer = first; layer < layers; layer += number(every)) places.push(layer);
    if (!(0 < places.length && places.length < layers)) {
      throw must("layers", `at least ${Math.max(first + 1, 2)}, for full layers and others`, layers);
    }
    const full = make({ frequencies: schedule("none"), reach: build("reach", "causal"), scales });
    return make({ reach: near, layers: new Map(places.map((layer) => [layer, full])) });
  }

  // How many layers there are to one full layer.
  function period(every) {
    if (number(every) < 2) throw must("every", "at least 2, one full layer and one other", every);
    return number(every);
  }

  // The largest power of two W with (W-1)(layers-1) + 1 <= 3/4 of the trained length.
  function hwfaWindow(layers, trained) {
    if (layers < 2) throw must("layers", "at least 2, one with windows and the last", layers);
    const widest = Math.trunc((0.75 * trained - 1) / (layers - 1) + 1);
    if (widest < 2) throw must("layers", `fewer, for a window of 2 in ${trained} trained tokens`, layers);
    return 2 ** Math.floor(Math.log2(widest));
  }

  function yarn(values) {
    const factor = stretch("yarn", values),
      { low_turns, high_turns, over } = values;
    const frequencies = schedule("by_parts", { factor, low_turns, high_turns });
    return make({ frequencies, scales: [scale("yarn_temperature", { factor, over })] });
  }

  const turnsOf = ({ low_turns, high_turns }) => ({ low_turns, high_turns });

  return {
    rope: () => make({ frequencies: schedule("rope") }),
    pi: (values) => make({ frequencies: schedule("interpolation", { factor: stretch("pi", values) }) }),
    ntk: (values) => make({ frequencies: schedule("ntk", { factor: stretch("ntk", values) }) }),
    ntk_mixed: (values) =>
      make({ frequencies: schedule("ntk_mixed", { factor: stretch("ntk_mixed", values) }), scales: [scale("log_n")] }),
    dynamic_ntk: ({ steps }) =>
      make({ frequencies: schedule("dynamic", { inner: schedule("ntk", { factor: 1 }), steps }) }),
    by_parts: (values) =>
      make({ frequencies: schedule("by_parts", { factor: stretch("by_parts", values), ...turnsOf(values) }) }),
    yarn,
    dynamic_yarn: ({ steps, over, ...values }) =>
      make({
        frequencies: schedule("dynamic", { inner: schedule("by_parts", { factor: 1, ...turnsOf(values) }), steps }),
        scales: [scale("dynamic", { inner: scale("yarn_temperature", { factor: 1, over }), steps })],
      }),
    ministral3(values) {
      const frequencies = schedule("by_parts", { factor: stretch("ministral3", values), ...turnsOf(values) });
      return make({ frequencies, scales: [scale("llama4_temperature")] });
    },
    abf: ({ new_base }) => make({ frequencies: schedule("abf", { new_base }) }),
    llama3(values) {
      const known = is(values.factor) || is(values.target_len);
      const factor = known ? stretch("llama3", values) : 8;
      return make({ frequencies: schedule("llama3", { factor, ...turnsOf(values) }) });
    },
    longrope(values) {
      const factor = stretch("longrope", values),
        { long, short: shorter } = values;
      if (shorter?.length && !long?.length) {
        throw because("short needs long", { remedy: "give both, or long alone" });
      }
      const searched = long?.length ? schedule("longrope", { long, short: shorter }) : null;
      const frequencies = searched ?? schedule("by_parts", { factor, mix: "wavelength" });
      return make({ frequencies, scales: [scale("longrope_temperature", { factor, over: values.over })] });
    },
    nope: () => make({ frequencies: schedule("none") }),
    p_rope: ({ share }) => make({ frequencies: schedule("partial", { share, over: "head" }) }),
    alibi: () => unrotated("alibi"),
    kerple: () => unrotated("kerple_log"),
    sandwich: () => unrotated("sandwich"),
    t5: () => unrotated("t5"),
    fire: () => unrotated("fire"),
    gau_bias: () => make({ biases: [build("biases", "gau_rotary")] }),
    xpos: ({ new_base }) => make({ frequencies: schedule("xpos", { new_base }) }),
    randomized: ({ limit, target_len }) =>
      make({
        positions: build("positions", "randomized", { limit: targetOr("randomized", "limit", limit, target_len, 4) }),
      }),
    pose(values) {
      const target = targetOr("pose", "target_len", null, values.target_len);
      const factor = stretch("pose", { ...values, target_len: target });
      return make({
        positions: build("positions", "pose", { target_len: target }),
        frequencies: schedule("interpolation", { factor }),
      });
    },
    hwfa({ layers, window, trained_len }) {
      const size = is(window) ? window : hwfaWindow(layers, shareOf("hwfa", "window", null, trained_len));
      const full = make({
        frequencies: schedule("none"),
        reach: build("reach", "causal"),
        scales: [scale("log_n", { clipped: false })],
      });
      return make({ reach: hiding("window", "window", size, trained_len), layers: new Map([[-1, full]]) });
    },
    hwfa_rerope({ layers, window, trained_len, rerope_window }) {
      if (layers < 3) throw must("layers", "at least 3, two of which are full", layers);
      const far = shareOf("hwfa_rerope", "rerope_window", rerope_window, trained_len, 1 / 2);
      const full = make({ reach: build("reach", "rerope", { window: far }), scales: [scale("log_n")] });
      const size = shareOf("hwfa_rerope", "window", window, trained_len, 3 / layers);
      const thirds = [Math.floor(layers / 3), Math.floor((2 * layers) / 3)];
      return make({
        reach: hiding("window", "window", size, trained_len),
        layers: new Map(thirds.map((layer) => [layer, full])),
      });
    },
    swan({ layers, every, window, trained_len }) {
      const size = shareOrFew("swan", "window", window, trained_len, 1 / 16);
      const near = hiding("window", "window", size, trained_len);
      return interleaved(near, [scale("log_n")], layers, 0, period(every));
    },
    rnope_swa({ layers, every, window, trained_len }) {
      const size = shareOf("rnope_swa", "window", window, trained_len, 1 / 2);
      const near = hiding("window", "window", size, trained_len);
      return interleaved(near, [], layers, period(every) - 1, period(every));
    },
    irope({ layers, every, chunk, trained_len }) {
      const size = shareOrFew("irope", "chunk", chunk, trained_len, 1 / 32);
      const temperature = scale("llama4_temperature", { length: size, first: 1 });
      const near = hiding("chunk", "chunks", size, trained_len);
      return interleaved(near, [temperature], layers, period(every) - 1, period(every));
    },
    ssmax: ({ start }) => make({ scales: [scale("ssmax", { start })] }),
    gqa: ({ kv_heads }) => make({ surgery: [build("surgery", "mha_to_gqa", { kv_heads })] }),
    qk_bias: () => make({ surgery: [build("surgery", "qk_bias")] }),
    stretched_positions({ target_len }) {
      const target = targetOr("stretched_positions", "target_len", null, target_len);
      return make({ surgery: [build("surgery", "stretch_positions", { target_len: target })] });
    },
    window: ({ window, trained_len }) =>
      ofReach("window", { window: shareOf("window", "window", window, trained_len) }),
    bca({ block, trained_len }) {
      const size = is(block) ? block : 2 * shareOf("bca", "block", null, trained_len, 1 / 2);
      return ofReach("blockwise", { block: size });
    },
    streaming: ({ window, n_sink, trained_len }) =>
      ofReach("sinks", { window: shareOf("streaming", "window", window, trained_len, 1, number(n_sink)), n_sink }),
    lm_infinite: ({ window, n_sink, trained_len }) =>
      ofReach("lambda_mask", { window: shareOf("lm_infinite", "window", window, trained_len), n_sink }),
    rerope: ({ window, trained_len }) =>
      ofReach("rerope", { window: shareOf("rerope", "window", window, trained_len, 1 / 4) }),
    leaky_rerope({ window, leak, trained_len, target_len }) {
      const size = shareOf("leaky_rerope", "window", window, trained_len, 1 / 4);
      const derived = () => float(squeeze(size, 1 / 2, trained_len, target_len) || 16);
      return ofReach("leaky_rerope", { window: size, leak: is(leak) ? leak : derived() });
    },
    rerope_by_parts({ window, leak, low_turns, high_turns, trained_len, target_len }) {
      const size = shareOf("rerope_by_parts", "window", window, trained_len, 3 / 8);
      const derived = () => float(squeeze(size, 3 / 4, trained_len, target_len) || 16);
      return ofReach("rerope_by_parts", { window: size, leak: is(leak) ? leak : derived(), low_turns, high_turns });
    },
    long_reach({ window, leak, trained_len, target_len }) {
      const size = shareOf("long_reach", "window", window, trained_len, 3 / 8);
      const derived = () => float(squeeze(size, 3 / 4, trained_len, target_len) || 16);
      const reach = build("reach", "rerope_by_parts", { window: size, leak: is(leak) ? leak : derived() });
      const biases = [build("biases", "far_discount", { window: size })];
      return make({ reach, biases, scales: [scale("log_n", { strength: float(1.5) })] });
    },
    self_extend({ window, group, trained_len, target_len }) {
      const size = shareOf("self_extend", "window", window, trained_len, 1 / 4);
      const derived = () => Math.ceil(squeeze(size, 2 / 3, trained_len, target_len) || 8);
      return ofReach("self_extend", { window: size, group: is(group) ? group : derived() });
    },
    dpe({ window, groups, trained_len, target_len }) {
      const size = shareOf("dpe", "window", window, trained_len, 1 / 4);
      const derived = () => {
        const finest = Math.ceil(squeeze(size, 2 / 3, trained_len, target_len) || 8);
        return [2, 32, 32, 2, 2, 2, 2, 1].map((times) => finest * times);
      };
      return ofReach("dpe", { window: size, groups: groups?.length ? groups : derived() });
    },
    dual_chunk({ chunk, local, trained_len }) {
      const place = shareOf("dual_chunk", "chunk", chunk, trained_len, 3 / 4);
      const near = shareOf("dual_chunk", "local", local, trained_len, 1 / 8);
      return ofReach("dual_chunk", { chunk: place, local: near });
    },
    string({ shift, local, trained_len }) {
      const start = shareOf("string", "shift", shift, trained_len, 1 / 3);
      const derived = () => Math.min(128, Math.max(Math.floor(number(start) / 4), 1));
      return ofReach("string", { shift: start, local: is(local) ? local : derived() });
    },
    log_n: ({ clipped, strength }) => make({ scales: [scale("log_n", { clipped, strength })] }),
    nbce: ({ beta, eta, top_p }) => make({ decoding: build("decoding", "nbce", { beta, eta, top_p }) }),
    parallel_windows: ({ beta }) => make({ decoding: build("decoding", "mean_pooling", { beta }) }),
  };
})();
