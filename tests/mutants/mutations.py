"""Formulas broken on purpose, each with the tests that must notice. Where a text stands twice, the first is broken."""

from typing import NamedTuple


class Mutation(NamedTuple):
    """One edit of one file of the package."""

    name: str
    file: str
    old: str
    new: str
    tests: str


# Without the comparison with transformers, whose import alone takes longer than all of these.
FREQUENCIES = " ".join(f"frequencies/test_{part}.py" for part in ("golden", "by_hand", "dynamic", "xpos"))
BOTH_WAYS = "hf/test_tables.py::test_both_ways_are_one_model"

MUTATIONS = (
    # The five that the project promises.
    Mutation("inverted YaRN ramp", "frequencies/by_parts.py", "return 1 - ((pair_index", "return ((pair_index", FREQUENCIES),
    Mutation("window off by one", "reach/signature.py", "lambda i: i - window + 1, stop=after", "lambda i: i - window, stop=after", "reach"),
    Mutation("temperature dropped", "presets/schedules.py", "schedule + Extension(scales=(YarnTemperature(factor=times),))", "schedule", "test_presets.py test_extension.py"),
    Mutation("temperature counted once", "scales/yarn_temperature.py", "+ 1) ** 2", "+ 1) ** 1", "scales"),
    Mutation("betas swapped", "frequencies/by_parts.py", "self._index_of(self.high_turns, facts), self._index_of(self.low_turns, facts)", "self._index_of(self.low_turns, facts), self._index_of(self.high_turns, facts)", FREQUENCIES),
    Mutation("strided GQA pooling", "surgery/mha_to_gqa.py", "reshape(self.kv_heads, -1, facts.head_dim, *rest)\n        return grouped.mean(1)", "reshape(-1, self.kv_heads, facts.head_dim, *rest)\n        return grouped.mean(0)", "surgery"),
    # Frequencies.
    Mutation("turn ramp inverted", "frequencies/by_parts.py", "turns - self.low_turns", "self.high_turns - turns", FREQUENCIES),
    Mutation("ramp's end not rounded", "frequencies/by_parts.py", "math.floor(first), math.ceil(last)", "math.floor(first), math.floor(last)", FREQUENCIES),
    Mutation("wavelengths mixed as frequencies", "frequencies/by_parts.py", 'self.mix == "wavelength"', "False", FREQUENCIES),
    Mutation("interpolation that speeds up", "frequencies/interpolation.py", "trained(facts) / self.factor", "trained(facts) * self.factor", FREQUENCIES),
    Mutation("NTK over d", "frequencies/ntk.py", "(facts.rotating - 2)", "facts.rotating", FREQUENCIES),
    Mutation("NTK fixed from the wrong pair", "frequencies/ntk_fixed.py", "pair_index(facts) + 1", "pair_index(facts)", FREQUENCIES),
    Mutation("mixed base without its power", "frequencies/ntk_mixed.py", "** self.power", "** 1", FREQUENCIES),
    Mutation("old base times factor twice", "frequencies/ntk_old.py", "-2 * pair_index", "-4 * pair_index", FREQUENCIES),
    Mutation("llama3 ramp inverted", "frequencies/llama3.py", "keep * theta + (1 - keep)", "(1 - keep) * theta + keep", FREQUENCIES),
    Mutation("longrope short and long swapped", "frequencies/longrope.py", "length > facts.trained_len:", "length <= facts.trained_len:", FREQUENCIES),
    Mutation("xpos without its real part", "frequencies/xpos.py", "torch.log(zeta) / self.scale_base", "torch.zeros_like(zeta)", FREQUENCIES),
    Mutation("dynamic rows one short", "frequencies/dynamic.py", "facts.stretch(length, self.steps)", "facts.stretch(length - 1, self.steps)", FREQUENCIES),
    Mutation("dynamic steps rounded down", "facts.py", "while self._step_end(step, steps) < length:", "while False:", FREQUENCIES),
    Mutation("a base that is forgotten", "frequencies/abf.py", "base=self.new_base", "base=facts.base", FREQUENCIES),
    # Reach.
    Mutation("ReRoPE beside its window", "reach/rerope.py", "always(self.window)", "always(self.window - 1)", "reach"),
    Mutation("leak multiplies", "reach/leaky_rerope.py", "j.double() / self.leak", "j.double() * self.leak", "reach"),
    Mutation("self-extend without its shift", "reach/self_extend.py", "// self.group + shift", "// self.group", "reach"),
    Mutation("sinks that run away", "reach/sinks.py", ".clamp(max=capacity - 1)", "", "reach"),
    Mutation("one sink too many", "reach/lambda_mask.py", "max=self.n_sink", "max=self.n_sink + 1", "reach"),
    Mutation("dual chunk without its ceiling", "reach/dual_chunk.py", ".clamp(max=self.chunk)", "", "reach"),
    Mutation("a span from before the text", "reach/signature.py", "self.start(i).clamp(min=0)", "self.start(i)", "invariants"),
    # Biases and scales.
    Mutation("ALiBi that rewards distance", "biases/alibi.py", "return -per_head", "return per_head", "biases"),
    Mutation("ALiBi slopes from the wrong half", "biases/alibi.py", "[0::2]", "[1::2]", "biases"),
    Mutation("KERPLE unclamped", "biases/kerple_log.py", ".clamp(min=SMALLEST)", "", "biases"),
    Mutation("Sandwich from 0", "biases/sandwich.py", "] = 1\n", "] = 0\n", "biases"),
    Mutation("GAU's sine reversed", "biases/gau_rotary.py", "a_even * b_odd - a_odd * b_even", "a_odd * b_even - a_even * b_odd", "biases"),
    Mutation("T5 buckets rounded up", "biases/t5.py", "* exact).long()", "* exact).ceil().long()", "biases"),
    Mutation("FIRE without its threshold", "biases/fire.py", "* self.threshold", "* 0", "biases"),
    Mutation("log-n from position 0", "scales/log_n.py", "position.double() + 1", "position.double() + 2", "scales"),
    Mutation("log-n unclipped", "scales/log_n.py", "growth.clamp(min=1) if self.clipped else growth", "growth", "scales"),
    Mutation("longrope's temperature squared", "scales/longrope_temperature.py", "value = 1 + math.log(self.factor) / math.log(facts.trained_len)", "value = (1 + math.log(self.factor) / math.log(facts.trained_len)) ** 2", "scales"),
    Mutation("head scale without its floor", "scales/head_scale.py", ".clamp(min=self.floor)", "", "scales"),
    # Positions and decoding.
    Mutation("randomized in drawn order", "positions/randomized.py", ".sort().values", "", "positions"),
    Mutation("PoSE skipping one too far", "positions/pose.py", "positions < cut", "positions <= cut", "positions"),
    Mutation("NBCE from the least sure", "decoding/nbce.py", "argmin()", "argmax()", "decoding"),
    Mutation("NBCE beta's sign", "decoding/nbce.py", "- self.beta * without", "+ self.beta * without", "decoding"),
    Mutation("NBCE may choose no context", "decoding/nbce.py", "entropy[1:].argmin()) + 1", "entropy.argmin())", "decoding"),
    Mutation("mean of everything", "decoding/mean_pooling.py", "logp[1:]", "logp", "decoding"),
    Mutation("stretched past the end", "surgery/stretch_positions.py", "(rows - 1) / max", "rows / max", "surgery"),
    # The oracle and what holds it together.
    Mutation("keys turned the other way", "equation.py", "first * angle.cos() - second", "first * angle.cos() + second", FREQUENCIES + " test_equation.py"),
    Mutation("keys decay like queries", "equation.py", "origin - k_at_bj", "k_at_bj - origin", "test_equation.py"),
    Mutation("no division by sqrt d", "equation.py", " / math.sqrt(facts.head_dim)", "", "test_equation.py"),
    Mutation("queries from the front", "equation.py", "numbers_bj[:, numbers_bj.shape[1] - q_bhid.shape[2] :]", "numbers_bj[:, : q_bhid.shape[2]]", "test_equation.py"),
    Mutation("documents see each other", "inputs.py", "related_bij &= documents_bi", "related_bij |= documents_bi", "test_equation.py"),
    Mutation("key heads in strides", "equation.py", "repeat_interleave(facts.heads // x_bgjd.shape[1], dim=1)", "repeat(1, facts.heads // x_bgjd.shape[1], 1, 1)", "test_equation.py"),
    Mutation("a layer's own ignored", "extension.py", "self._overridden(own or Extension())", "self._overridden(Extension())", "test_equation.py test_extension.py"),
    Mutation("biases at the true distance", "equation.py", "(q_at_bi[:, :, None] - k_at_bj[:, None, :])", "(i_bi[:, :, None] - j_bj[:, None, :])", "test_equation.py"),
    # What the model brings.
    Mutation("the cap forgotten by the oracle", "equation.py", "softcap * torch.tanh(logit_bhij / softcap)", "logit_bhij", "test_equation.py"),
    Mutation("the cap before the bias", "equation.py", "product_bhij = product_bhij + _bias(", "product_bhij = _capped(product_bhij, facts.softcap) + _bias(", "test_equation.py"),
    Mutation("the oracle's sink forgotten", "equation.py", "(weights or {}).get(MODEL, {}).get(SINKS)", "None", "test_equation.py"),
    Mutation("a sink capped", "equation.py", "sink_bhi = sink_h.double()", "sink_bhi = 2 * torch.tanh(sink_h.double() / 2)", "test_equation.py"),
    Mutation("the cap forgotten", "attention/softmax.py", "softcap * torch.tanh(logit / softcap)", "logit", "attention/test_softmax.py::test_equals_the_oracle_in_float64"),
    Mutation("a cap that is not put back", "attention/softmax.py", "softcap * torch.tanh", "torch.tanh", "attention/test_softmax.py::test_equals_the_oracle_in_float64"),
    Mutation("what is hidden shows at minus the cap", "attention/memory.py", "whole.masked_fill(mask == -torch.inf, -torch.inf)", "whole", "attention/test_softmax.py::test_a_memory_reads_the_same_however_it_is_cut"),
    Mutation("the sink forgotten", "attention/one_text.py", "return self.weights.get(MODEL, {}).get(SINKS)", "return None", "attention/test_softmax.py::test_equals_the_oracle_in_float64"),
    Mutation("the sink added to the values", "attention/softmax.py", "(part.out_bhid * share_bhi[..., None])", "(part.out_bhid * share_bhi[..., None] + 1 - share_bhi[..., None])", "attention/test_softmax.py::test_equals_the_oracle_in_float64"),
    Mutation("the last key's weight dropped for the sink's", "attention/softmax.py", "[..., :-1]", "[..., 1:]", "attention/test_softmax.py::test_equals_the_oracle_in_float64"),
    Mutation("a sink that learns the other way", "attention/softmax.py", "-(weight_bhi * common_bhi)", "(weight_bhi * common_bhi)", "attention/test_softmax.py::test_sinks_learn_as_the_oracles_do"),
    Mutation("a sink beside lowered logits", "attention/toeplitz.py", "(sink_h[self.band.heads] - self.highest_h)", "sink_h[self.band.heads]", "attention/test_softmax.py::test_equals_the_oracle_in_float64"),
    # Attention, fast.
    Mutation("a triangle one key short", "attention/cover.py", '"triangle", first, rows, high - 1, rows', '"triangle", first, rows, high - 2, rows', "attention/test_cover.py"),
    Mutation("a band one key wide", "attention/cover.py", "high - low + rows - 1)", "high - low + rows)", "attention/test_cover.py"),
    Mutation("parts weighted the wrong way", "attention/flash.py", "torch.exp(part.lse_bhi - total)", "torch.exp(target.lse_bhi - total)", "attention/test_attend.py::test_equals_the_oracle_in_float64"),
    Mutation("a part's own sum in the backward pass", "attention/flash.py", "answer = Part(*(self._queries(each).contiguous() for each in whole))", "answer = kernels.forward(q, k, v, triangle=self.piece.kind == 'triangle', mask_ij=self.mask_ij)", "attention/test_attend.py::test_equals_the_oracle_in_float64"),
    Mutation("the transpose forgotten", "attention/rotation.py", "_rotated(grads[0], cos, -sin", "_rotated(grads[0], cos, sin", "attention/test_attend.py::test_equals_the_oracle_in_float64"),
    Mutation("a mask one distance off", "attention/toeplitz.py", "distance < own.nearest", "distance <= own.nearest", "attention/test_toeplitz.py"),
    Mutation("no room for the nearest key's logit", "attention/pruning.py", " - own_bgri", "", "attention/test_pruning.py::test_a_far_key_that_all_look_for_is_not_lost"),
    Mutation("far keys as short as the shortest", "attention/pruning.py", "dim=-1).amax(-1) for k in every", "dim=-1).amin(-1) for k in every", "attention/test_pruning.py::test_nothing_is_cut_where_norms_forbid_it"),
    Mutation("NaN certified", "attention/pruning.py", "negligible_bhx = (beyond_hx <= allowed_bh[..., None]) & (allowed_bh[..., None] > SMALLEST)", "negligible_bhx = ~(beyond_hx > allowed_bh[..., None])", "attention/test_pruning.py::test_nothing_is_cut_where_norms_forbid_it"),
    Mutation("diagonals one column off", "attention/skewed.py", "as_strided((rows, width), (width, 1))", "as_strided((rows, width - 1), (width + 1, 1))", "attention/test_skewed.py"),
    Mutation("a slope without what its row has in common", "attention/skewed.py", "slope_ij.sub_(common_i[:, None])", "slope_ij", "attention/test_skewed.py"),
    Mutation("a window one key wide on cuda", "attention/entry_points.py", "(sight.window - 1, 0)", "(sight.window, 0)", "attention/test_entry_points.py"),
    Mutation("a padded head's scale on cuda", "attention/entry_points.py", "1 / math.sqrt(size)", "1 / math.sqrt(size + -size % EIGHT)", "attention/test_entry_points.py"),
    Mutation("a block full too soon", "attention/blocks.py", "_up(begins.amax(1))", "begins.amax(1) // BLOCK", "attention/test_blocks.py"),
    Mutation("a place off the line", "attention/distances.py", "x_i - lowest, y_j", "x_i - lowest + 1, y_j", "attention/test_distances.py"),
    Mutation("a tile called whole too soon", "attention/walks.py", "blocks.all_high // keys * keys", "_rounded_up(blocks.all_high, keys)", "attention/test_walks.py"),
    Mutation("a block of rows that stops early", "attention/walks.py", "_least_from_here_on(blocks.low), begin + keys)", "_least_from_here_on(blocks.low), begin)", "attention/test_walks.py"),
    Mutation("shared whatever the positions", "attention/sharing.py", "each.numpy().tobytes()", "b''", "attention/test_sharing.py"),
    Mutation("the last tile forgotten", "attention/nll.py", "range(0, length, size)", "range(0, length - length % size or length, size)", "attention/test_nll.py"),
    Mutation("taken back from what is written over", "attention/shelves.py", "max(0, count - self.size)", "max(0, count)", "attention/test_memory.py::test_no_more_is_taken_back_than_there_is_room_for"),
    Mutation("spare room that is not kept", "attention/shelves.py", "newest = torch.arange(max(count, end - self.room), end)", "newest = torch.arange(max(count, end - self.size), end)", "attention/test_memory.py::test_tokens_are_taken_back"),
    Mutation("unknown parameters ignored", "spec.py", "if name not in known:", "if False:", "invariants/test_every_method.py::test_unknown_parameters_are_refused"),
    Mutation("rules not checked", "record.py", "and not _holds(parameter.rule, read)", "and False", "test_bad_input.py"),
    # The two ways into a model.
    Mutation("tables: a scale that reaches no logits", "hf/tables.py", "_scaling(own) * scale", "_scaling(own)", BOTH_WAYS),
    Mutation("tables: layers with windows ruled", "hf/tables.py", "(None, 1.0) if own.left_alone else", "(None, 1.0) if False else", "hf/test_tables.py::test_both_ways_are_one_model"),
    Mutation("tables: a temperature of its own left", "hf/tables.py", "if name in own and own[name] != content.temperature:", "if False:", "hf/test_tables.py::test_a_temperature_of_its_own_gives_way"),
    Mutation("tables: cast with the model", "hf/tables.py", "module._buffers[name] = table.to(now.device)", "module._buffers[name] = now", "hf/test_tables.py::test_a_cast_leaves_the_tables_alone"),
    Mutation("tables: schedules that compute anew left on", "hf/tables.py", '_put(own, "rope_type", "default", undo)', "pass", "hf/test_tables.py::test_a_schedule_of_its_own_that_computes_anew_is_switched_off"),
    Mutation("tables: not put back", "hf/tables.py", "undo.callback(_put_back, module, name, before)", "pass", BOTH_WAYS),
    Mutation("a cache that forgets the way", "hf/belonging.py", "self.mark = Mark(extension, way)", 'self.mark = Mark(extension, "")', "hf/test_belonging.py::test_the_cache_of_another_extension_or_of_the_other_way"),
    Mutation("every row numbered alike", "lab/numbering.py", "{self._seed}/numbers/{index}", "{self._seed}/numbers", "lab/test_numbering.py"),
    Mutation("a text seen from the next one", "lab/numbering.py", "documents_bn[:, None, :, None] == documents_bn", "documents_bn[:, None, :, None] >= documents_bn", "lab/test_numbering.py"),
    Mutation("a stage one item late", "lab/course.py", "bisect_right(self._ends, index)", "bisect_right(self._ends, index - 1)", "lab/test_course.py"),
    # Evaluation.
    Mutation("Wilson's interval without its width", "evaluation/scores.py", "square / (4 * trials**2)", "0", "evaluation/test_scores.py"),
    Mutation("few documents taken for many", "evaluation/scores.py", "if len(values) - 2 < len(STUDENT):", "if False:", "evaluation/test_scores.py"),
    Mutation("nats for bits", "evaluation/losses.py", "/ math.log(2)", "", "evaluation/test_losses.py::test_bits_per_byte_by_hand"),
    Mutation("a window's old tokens counted", "evaluation/perplexity.py", "row[-new:]", "row[:new]", "evaluation/test_perplexity.py::test_windows_by_hand"),
    Mutation("a length reached by chance", "evaluation/effective.py", "takewhile(lambda length: own", "filter(lambda length: own", "evaluation/test_effective.py"),
    Mutation("other tokens at each length", "evaluation/tasks/context.py", "[None, -length:]", "[None, :length]", "evaluation/test_tasks.py::test_context_judges_the_same_tokens_at_every_length"),
    Mutation("a needle at half its depth", "evaluation/prompts.py", "round(each.depth * size)", "round(each.depth * size / 2)", "evaluation/test_prompts.py"),
    Mutation("a cell named without its length", "evaluation/cells.py", '"length": self.length,', "", "evaluation/test_runner.py::test_a_cell_has_the_name_of_all_it_depends_on"),
    Mutation("learned from a text's first token", "lab/packs.py", "tokens.masked_fill(positions == 0, IGNORED)", "tokens", "lab/test_packs.py::test_rows_are_full_and_texts_begin_at_0"),
    # Search.
    Mutation("a step up the slopes", "search/spaces/descent.py", "step = -mean", "step = mean", "search/test_descent.py"),
    Mutation("chance followed", "search/spaces/descent.py", "* certain /", "/", "search/test_descent.py::test_what_is_uncertain_does_not_move"),
    Mutation("a temperature counted twice in its slope", "hf/slopes.py", "(leaves.temperature / 2)", "leaves.temperature", "hf/test_slopes.py::test_slopes_are_those_of_the_losses"),
    Mutation("judged by what was fitted on", "search/fitting.py", "self.texts(1, ", "self.texts(0, ", "search/test_fitting.py::test_the_texts_that_judge_were_never_fitted_on"),
    Mutation("shares that rise alone", "search/spaces/pairs.py", "(high + low) / 2", "high", "search/test_spaces.py::test_the_nearest_that_never_falls"),
    Mutation("what was interrupted counts", "search/halving.py", "each.state != TrialState.FAIL and", "", "search/test_searching.py::test_killed_and_gone_on_is_uninterrupted[3-False]"),
)  # fmt: skip
