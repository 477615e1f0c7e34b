// The facts of a model from its config.json, as ropewalk/hf/probe/facts.py reads them; notes say what was not
// understood.
"use strict";
Ropewalk.config = (() => {
  const { because, must, shown } = Ropewalk.errors;
  const USUAL_BASE = 10000;
  // Of rope parameters: what is read here. Anything else that is stated is named in a note.
  const READ = new Set([
    ...["rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings", "partial_rotary_factor"],
    ...["beta_fast", "beta_slow", "truncate", "low_freq_factor", "high_freq_factor", "short_factor", "long_factor"],
    ...["attention_factor", "mscale", "mscale_all_dim"],
  ]);
  const KEPT = ["factor", "beta_fast", "beta_slow", "truncate", "low_freq_factor", "high_freq_factor", "short_factor"];
  const TYPES = ["default", "linear", "dynamic", "yarn", "llama3", "longrope", "proportional"];
  const FULL = "full_attention";

  // {facts to be made, own: the checkpoint's schedule or null, notes: [word, values] for what is to be said}
  function read(text) {
    const whole = object(text),
      config = whole.text_config ?? whole,
      notes = [];
    const [kind, part] = ropeOf(config, notes);
    const type = typeOf(part, notes);
    const [trained, original] = lengths(config, part, type);
    const { head_dim, rotary_dim } = dimensions(config, part, type, notes);
    const base = part.rope_theta ?? config.rope_theta ?? config.rotary_emb_base;
    if (base === undefined) notes.push(["note_no_base", {}]);
    remarks(config, part, type, kind, notes);
    return {
      stated: {
        trained_len: trained,
        original_len: original === trained ? null : original,
        head_dim,
        rotary_dim: rotary_dim === head_dim ? null : rotary_dim,
        base: positive("rope_theta", base ?? USUAL_BASE),
        heads: config.num_attention_heads ?? 1,
        kv_heads: config.num_key_value_heads ?? null,
        layers: config.num_hidden_layers ?? 1,
      },
      own: ownOf(part, type),
      notes,
    };
  }

  function object(text) {
    let read;
    try {
      read = JSON.parse(text);
    } catch (reason) {
      throw because(`config must be JSON; ${reason.message}`);
    }
    if (!read || typeof read !== "object" || Array.isArray(read)) throw must("config", "a JSON object", text);
    return read;
  }

  // The rope parameters: those of full attention where layer types have their own.
  function ropeOf(config, notes) {
    const top = {
      rope_theta: config.rope_theta,
      partial_rotary_factor: config.partial_rotary_factor ?? config.rotary_pct,
    };
    const stated = {
      ...withoutNothing(top),
      ...withoutNothing(config.rope_scaling ?? {}),
      ...withoutNothing(config.rope_parameters ?? {}),
    };
    const nested = Object.entries(stated).filter(
      ([, part]) => part && typeof part === "object" && !Array.isArray(part),
    );
    if (!nested.length) return ["", stated];
    const [kind, part] = nested.find(([name]) => name === FULL) ?? nested[0];
    const others = nested.map(([name]) => name).filter((name) => name !== kind);
    if (others.length) notes.push(["note_layer_types", { drawn: kind, others: others.join(", ") }]);
    return [kind, withoutNothing(part)];
  }

  const withoutNothing = (part) =>
    Object.fromEntries(Object.entries(part).filter(([, value]) => (value ?? null) !== null));

  function typeOf(part, notes) {
    const stated = part.rope_type ?? part.type ?? "default";
    const type = stated === "su" ? "longrope" : stated;
    if (TYPES.includes(type)) return type;
    notes.push([stated === "mrope" ? "note_mrope" : "note_unknown_type", { type: String(stated) }]);
    return "default";
  }

  // The trained length with the schedule, and the one before it, by the rule of each type.
  function lengths(config, part, type) {
    const before = part.original_max_position_embeddings ?? config.original_max_position_embeddings;
    const position = config.max_position_embeddings ?? before;
    if (!(position >= 1)) {
      throw must(
        "max_position_embeddings",
        "a length of at least 1",
        position,
        "write the trained length above instead",
      );
    }
    const factor = part.factor ?? 1,
      original = before ?? position,
      stretched = Math.round(original * factor);
    if (type === "yarn") return [stretched, Math.trunc(original)];
    if (type === "llama3" || type === "longrope")
      return [position > original ? position : stretched, Math.trunc(original)];
    return [position, type === "linear" ? Math.max(Math.round(position / factor), 1) : position];
  }

  function dimensions(config, part, type, notes) {
    if (config.kv_lora_rank) {
      notes.push(["note_latent", {}]);
      const rotary_dim = positive("qk_rope_head_dim", config.qk_rope_head_dim);
      return { head_dim: rotary_dim + (config.qk_nope_head_dim ?? 0), rotary_dim };
    }
    const own = type === "proportional" ? (config.global_head_dim ?? config.head_dim) : config.head_dim;
    const head_dim =
      own ?? positive("hidden_size", config.hidden_size) / positive("num_attention_heads", config.num_attention_heads);
    const share = type === "proportional" ? 1 : (part.partial_rotary_factor ?? 1);
    return { head_dim, rotary_dim: config.rotary_dim ?? Math.trunc(head_dim * share) };
  }

  function positive(field, value) {
    if (typeof value === "number" && value > 0 && Number.isFinite(value)) return value;
    throw must(`config.${field}`, "a number above 0", value === undefined ? null : value);
  }

  // The checkpoint's own schedule, in as few values as its table needs.
  function ownOf(part, type) {
    if (type === "default" || type === "dynamic") return null;
    const kept = Object.fromEntries(KEPT.filter((name) => name in part).map((name) => [name, part[name]]));
    if (type === "proportional") kept.share = part.partial_rotary_factor ?? 1;
    return { type, ...kept };
  }

  function remarks(config, part, type, kind, notes) {
    const unread = Object.keys(part).filter((name) => !READ.has(name));
    if (unread.length) notes.push(["note_unread", { names: unread.join(", ") }]);
    if (type === "dynamic") notes.push(["note_dynamic", {}]);
    if (type === "longrope") notes.push(["note_longrope", {}]);
    const temperature = part.attention_factor ?? part.mscale ?? (type === "yarn" || type === "longrope" || null);
    if (temperature) notes.push(["note_temperature", {}]);
    if (config.sliding_window && config.use_sliding_window !== false) {
      notes.push(["note_window", { window: String(config.sliding_window) }]);
    }
    if (config.attn_logit_softcapping) notes.push(["note_softcap", {}]);
    if (config.num_attention_heads === undefined) notes.push(["note_no_heads", {}]);
  }

  // The facts with the table that the checkpoint came with.
  function withTable(stated, own) {
    const facts = Ropewalk.facts.make({ ...stated, inv_freq: null });
    if (!own) return facts;
    const inv_freq = tableOf(facts, own);
    const sound = inv_freq.every((theta) => Number.isFinite(theta) && theta >= 0);
    if (!sound) throw because(`the values of rope type ${shown(own.type)} give no table`);
    return { ...facts, inv_freq };
  }

  function tableOf(facts, own) {
    const before = { ...facts, trained_len: facts.original_len ?? facts.trained_len };
    const factor = own.factor ?? before.trained_len / facts.trained_len;
    const method = (name, values) => Ropewalk.methods.frequencies[name].table(values, before, 1).invFreq;
    switch (own.type) {
      case "linear":
        return method("interpolation", { factor });
      case "yarn": {
        const turns = { low_turns: own.beta_slow ?? 1, high_turns: own.beta_fast ?? 32 };
        return method("by_parts", {
          factor,
          ...turns,
          ramp: "index",
          mix: "frequency",
          truncate: own.truncate ?? true,
        });
      }
      case "llama3":
        return method("llama3", { factor, low_turns: own.low_freq_factor, high_turns: own.high_freq_factor });
      case "longrope":
        return divided(before, own.short_factor);
      case "proportional":
        return Ropewalk.frequencies.formula(before).map((theta, pair) => {
          return pair < Math.trunc((own.share * facts.head_dim) / 2) ? theta / (own.factor ?? 1) : 0;
        });
    }
    throw because(`there is no rope type ${shown(own.type)}`);
  }

  function divided(facts, divisors) {
    const pairs = Ropewalk.facts.rotating(facts) / 2;
    if (!Array.isArray(divisors) || divisors.length !== pairs) {
      throw must("short_factor", `${pairs} numbers above 0, one for each pair`, divisors ?? null);
    }
    return Ropewalk.frequencies.formula(facts).map((theta, pair) => theta / divisors[pair]);
  }

  return { read, withTable };
})();
