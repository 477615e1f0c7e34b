// What an engine makes of an extension on a Llama, by the rules of ropewalk/engines/export: a word for each engine,
// and vLLM's flags where it computes the same from the config alone.
"use strict";
Ropewalk.engines = (() => {
  const { theta } = Ropewalk.extension;
  const STATIC = ["temperature", "yarn_temperature", "deepseek_temperature", "longrope_temperature"];
  const CLOSE = 1e-9;
  const alike = (one, other) => Math.abs(one - other) <= CLOSE * Math.abs(other);

  // {vllm, sglang, "llama.cpp"}: native, lowered, plugin, frozen or refused.
  function kinds(extension, facts, target) {
    const all = (kind) => ({ vllm: kind, sglang: kind, "llama.cpp": kind });
    const { reach, decoding, surgery } = extension,
      decays = schedules(extension).some(({ name }) => name === "xpos");
    if (decoding || surgery.length || decays) return all("refused");
    if (needsAttention(extension)) return { ...all("refused"), vllm: "plugin" };
    if (isDynamic(extension)) return { ...all("frozen"), vllm: "plugin", ...(reach && { "llama.cpp": "refused" }) };
    const config = stated(extension, facts),
      native = config ? "native" : "lowered";
    const tooShort = config?.rope_type === "yarn" && Math.trunc(facts.trained_len * config.factor) < target;
    return {
      vllm: tooShort ? "lowered" : native,
      sglang: native,
      "llama.cpp": reach ? "refused" : inLlamaCpp(config) ? "native" : "lowered",
    };
  }

  // The schedule, and those inside it.
  const schedules = ({ frequencies }) => Ropewalk.record.withInner(frequencies);
  const isNoTable = ({ name, values }) =>
    name === "longrope"
      ? !Ropewalk.record.same(values.long, values.short)
      : name === "partial" && values.over === "rotating";

  // Whether a part of it is neither a table nor a constant factor of the logits.
  function needsAttention(extension) {
    const { reach, biases, scales, layers } = extension;
    if (biases.length || layers.size || (reach && reach.name !== "window")) return true;
    const constant = (spec) => STATIC.includes(spec.name === "dynamic" ? spec.values.inner.name : spec.name);
    return schedules(extension).some(isNoTable) || !scales.every(constant);
  }

  const isDynamic = (extension) =>
    [...schedules(extension), ...extension.scales].some((spec) => spec.name === "dynamic");

  // The rope parameters that say it by name, or by another base; nothing where it must be said pair by pair.
  function stated(extension, facts) {
    const schedule = theta(extension),
      { factor, low_turns, high_turns } = schedule.values;
    const temperature = Math.sqrt(Ropewalk.diagnostics.scaleAt({ extension, facts, weights: {} }, 0));
    const original = { original_max_position_embeddings: facts.trained_len };
    if (schedule.name === "by_parts" && schedule.values.ramp === "index" && schedule.values.mix === "frequency") {
      const turns = { beta_slow: low_turns, beta_fast: high_turns, truncate: schedule.values.truncate };
      return {
        rope_theta: facts.base,
        rope_type: "yarn",
        factor,
        ...original,
        attention_factor: temperature,
        ...turns,
      };
    }
    if (temperature !== 1) return null;
    if (schedule.name === "interpolation") return { rope_theta: facts.base, rope_type: "linear", factor };
    if (schedule.name === "llama3") {
      const turns = { low_freq_factor: low_turns, high_freq_factor: high_turns };
      return { rope_theta: facts.base, rope_type: "llama3", factor, ...original, ...turns };
    }
    return byBase(schedule, facts);
  }

  // Another base, where that gives the whole table.
  function byBase(schedule, facts) {
    const table = Ropewalk.frequencies.tableOf(schedule, facts, facts.trained_len).invFreq,
      dims = 2 * table.length;
    const slowest = table.at(-1);
    if (dims <= 2 || slowest <= 0) return null;
    const exact = slowest ** (-dims / (dims - 2)),
      rounded = Math.round(exact);
    const base = Math.abs(exact - rounded) <= 1e-12 * exact ? rounded : exact;
    const same = table.every((angle, pair) => alike(base ** ((-2 * pair) / dims), angle));
    return base > 1 && same ? { rope_theta: base, rope_type: "default" } : null;
  }

  // llama.cpp knows YaRN with its usual thresholds and temperature alone, and no llama3.
  function inLlamaCpp(config) {
    if (config?.rope_type !== "yarn") return config !== null && config.rope_type !== "llama3";
    const usual = config.beta_slow === 1 && config.beta_fast === 32 && config.truncate;
    return usual && Math.abs(config.attention_factor - (0.1 * Math.log(config.factor) + 1)) <= 1e-6;
  }

  // The options of `vllm serve`; empty where the engine alone does not compute the same.
  function vllmFlags(extension, facts, target) {
    if (facts.inv_freq || extension.reach || kinds(extension, facts, target).vllm !== "native") return "";
    const { rope_theta, ...config } = stated(extension, facts),
      share = Ropewalk.facts.rotating(facts) / facts.head_dim;
    const longest = config.rope_type === "linear" ? Math.ceil(target / config.factor) : target;
    const changes = {
      rope_parameters: { rope_theta, ...(share < 1 && { partial_rotary_factor: share }), ...config },
      ...(longest !== facts.trained_len && { max_position_embeddings: longest }),
    };
    return `--hf-overrides '${JSON.stringify(changes)}' --max-model-len ${target}`;
  }

  return { kinds, vllmFlags };
})();
