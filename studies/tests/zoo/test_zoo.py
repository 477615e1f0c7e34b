"""The zoo, end to end with models of a few steps: measured, kept, resumed; and its page."""

import json
import math
from collections import defaultdict
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer

import ropewalk as rw
from ropewalk.errors import DoesNotFit, InvalidValue, RopewalkError, UnknownName
from ropewalk.measure.metrics.intervals import crossed_mean
from ropewalk.train.recipes.pretrain import extension_for
from ropewalk.train.small_models import ModelShape
from ropewalk.train.train import TrainingPlan

from studies.claims import POINTS, TOO_LITTLE, judge
from studies.zoo import training as module
from studies.zoo.claims import CLAIMS, reruns, verdicts as verdicts_of
from studies.zoo.figures import AccuracyTerm, ZooFigures
from studies.zoo.inside.claims import inside_verdicts
from studies.zoo.measuring import TIMES
from studies.zoo.methods import METHODS, TRAINED, UNTRAINED, ZooMethod
from studies.zoo.zoo import ZooSettings, zoo
from studies.zoo.zoo_page import zoo_page
from train.texts import folder_of

SHAPE = ModelShape(vocabulary=300, width=32, inner=48, layers=4, heads=2, trained_len=16)
PLAN = TrainingPlan(steps=3, rows=4, progress=False)


def run(path, methods, seeds=1):
    corpus = folder_of(path / "texts", count=60, words=200)
    settings = {"methods": methods, "seeds": seeds, "texts": 2, "corpus": corpus}
    return zoo(path / "zoo", ZooSettings(plan=PLAN, shape=SHAPE, **settings))


@pytest.mark.parametrize("name", TRAINED)
def test_every_method_fits_the_shape_it_is_trained_with(name):
    line = METHODS[name].line(SHAPE)
    extension_for(SHAPE, line)
    assert "{" not in line


def test_figures_are_those_of_the_models(tmp_path):
    run(tmp_path, "rope,hwfa")
    found = json.loads((tmp_path / "zoo" / "zoo.json").read_text())
    assert [model["method"] for model in found["models"]] == ["hwfa", "rope"]
    ids = torch.tensor(json.loads((tmp_path / "zoo" / "held_out.json").read_text())["tokens"])
    assert ids.shape == (2, 10 * 16)
    model = rw.load(tmp_path / "zoo" / "models" / "rope-0" / "model")
    rows = {(row["kind"], row["times"]): row for row in found["models"][1]["figures"]}
    for kind, times, texts in (
        ("non-repeated", 10, ids),
        ("non-repeated", 2, ids[:, -32:]),
        ("repeated", 4, ids[:, :16].repeat(1, 4)),
        ("repeated from afar", 8, torch.cat([ids[:, 32:80], ids[:, -16:], ids[:, 96:]], 1)),
    ):
        with torch.no_grad():
            logits = model(input_ids=texts).logits[:, :-1]
        losses = cross_entropy(logits.transpose(1, 2), texts[:, 1:], reduction="none")
        row = rows[kind, times]
        assert row["loss"] == pytest.approx(float(losses[:, -15:].mean()), abs=1e-4)
        hits = (logits.argmax(-1) == texts[:, 1:]).double()[:, -15:].mean(1)
        assert row["accuracy_of_texts"] == pytest.approx(hits.tolist(), abs=1e-6)
        assert row["accuracy"] == pytest.approx(float(hits.mean()), abs=1e-6)
    assert not list((tmp_path / "zoo" / "models" / "rope-0").glob("checkpoint-*"))


def test_it_goes_on_with_what_is_missing(tmp_path, monkeypatch):
    class Killed(Exception):
        pass

    trained, original = [], module.pretrain

    def pretrain(place, *arguments, **named):
        if len(trained) == 2:
            raise Killed
        trained.append(place.name)
        return original(place, *arguments, **named)

    monkeypatch.setattr(module, "pretrain", pretrain)
    with pytest.raises(Killed):
        run(tmp_path, "nope,randomized_learned", seeds=2)
    before = json.loads((tmp_path / "zoo" / "zoo.json").read_text())["models"]
    trained.clear()
    run(tmp_path, "nope,randomized_learned", seeds=2)
    after = json.loads((tmp_path / "zoo" / "zoo.json").read_text())["models"]
    assert trained == ["nope-1", "randomized_learned-1"]
    assert len(after) == 4
    assert all(model in after for model in before)
    assert "nope | 2 |" in (tmp_path / "zoo" / "zoo.md").read_text()


def test_a_method_that_is_not_there(tmp_path):
    with pytest.raises(UnknownName, match=r"the zoo has no method 'magic'\. It has: rope, qk_bias"):
        run(tmp_path, "rope,magic")


def test_what_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(InvalidValue, match=r"corpus must be one with a held-out part, .*, got 'all:python'"):
        zoo(tmp_path / "zoo", ZooSettings(plan=PLAN, shape=SHAPE, corpus="all:python"))
    with pytest.raises(InvalidValue, match="places must be rotary"):
        zoo(tmp_path / "zoo", ZooSettings(plan=PLAN, shape=replace(SHAPE, places="learned")))
    assert not (tmp_path / "zoo").exists()


def models(**accuracies):
    """Figures as a zoo would have them: accuracy of each seed from 2x on, where 1x is 0.5; three texts alike."""
    return [
        {
            "method": name,
            "seed": seed,
            "figures": [figures(times, kind, 0.5 if times == 1 else at) for kind in KINDS for times in TIMES],
        }
        for name, per_seed in accuracies.items()
        for seed, at in enumerate(per_seed)
    ]


KINDS = ("non-repeated", "repeated", "repeated from afar")


def figures(times, kind, share):
    of_texts = [share - 0.01, share, share + 0.01]
    return {"times": times, "kind": kind, "accuracy": share, "loss": 2.0, "accuracy_of_texts": of_texts}


def page(made):
    results = {"plan": {"steps": 1, "rows": 1, "accumulate": 1}, "shape": vars(SHAPE)}
    results |= {"read": {"puzzles": {}, "corpus": "python", "texts": 3}, "models": made}
    return zoo_page(results, verdicts_of(results))


def verdicts(text):
    return {line.partition(" (")[0]: line for line in text.splitlines() if line.startswith("- ")}


A_THIRD = "- Plain rotation fails beyond its length: at 8x at most 34.2 % of its accuracy is left."


def test_the_page_says_what_was_reproduced():
    text = page(models(rope=[0.1, 0.104], hwfa=[0.4985, 0.4983], nope=[0.05, 0.054], alibi=[0.45, 0.55]))
    assert f"| rope | 2 | 50.0 (50.0 to 50.0) |{5 * ' 10.2 (10.0 to 10.4) |'}" in text
    lines = verdicts(text)
    assert "**agrees**" in lines[A_THIRD]
    assert "**agrees**" in lines["- HWFA loses less than a point from 2x to 8x."]
    assert "**disagrees at this size**" in lines["- No positions at all beat plain rotation at 8x."]
    # At 1x it is another figure.
    assert "**agrees**" in lines["- ALiBi loses nothing from 2x to 8x: at most half a point."]
    assert "**undecided (not measured" in lines["- KERPLE loses nothing from 2x to 8x: at most half a point."]


def test_a_third_is_a_third():
    """The article keeps 34 % and calls it a third; 40 % of the accuracy are more."""
    assert (
        "**disagrees at this size**: 17.1 against 20.0 points." in verdicts(page(models(rope=[0.2, 0.2, 0.2])))[A_THIRD]
    )
    assert "**undecided**" in verdicts(page(models(rope=[0.16, 0.17, 0.18])))[A_THIRD]


def test_texts_of_a_project_are_drawn_together():
    """Three texts of two seeds, of two projects: as if the first project had one text of twice the weight."""
    made = models(rope=[0.4, 0.6])
    term = [AccuracyTerm(1, "rope", 8)]
    together = ZooFigures(made, ["a", "a", "b"]).sum(term)
    assert together == pytest.approx(crossed_mean([[0.39, 0.40, 0.41], [0.59, 0.60, 0.61]], groups=["a", "a", "b"]))
    assert together.low < ZooFigures(made).sum(term).low


def test_models_that_have_learned_nothing_say_nothing():
    ignorant = models(alibi=[0.05, 0.05])
    for row in (row for model in ignorant for row in model["figures"]):
        row["accuracy"] = 0.05
    text = page(ignorant)
    assert (
        "ALiBi loses nothing from 2x to 8x: at most half a point. (arXiv:2108.12409): "
        "**undecided (the models have learned too little)**" in text
    )
    assert "**agrees**" not in text


@pytest.mark.parametrize(("copied", "word"), [(0.4, "**undecided (the models have learned"), (0.6, "**agrees**")])
def test_as_good_as_what_has_not_learned_to_copy_says_nothing(copied, word):
    made = models(longer_from_0=[0.3, 0.3], **{f"longer_from_{share}": [0.5, 0.5] for share in (20, 40, 80)})
    for row in (row for model in made[:2] for row in model["figures"] if row["kind"] == "repeated"):
        row["accuracy"] = copied
    (line,) = [line for line in page(made).splitlines() if line.startswith("- Short rows for 20, 40 or 80 %")]
    assert word in line


def test_a_single_seed_is_not_judged():
    assert "**undecided (a single seed; one model)**" in verdicts(page(models(rope=[0.1])))[A_THIRD]


def test_a_model_that_breaks_without_training_is_evidence():
    """Whether a model has learned is asked of the one that was trained."""
    line = "- Without training a single averaged key head breaks the model: at most half of its accuracy is left at 1x."
    made = models(rope=[0.3, 0.3], rope_with_1_kv_head=[0.05, 0.05])
    for row in (row for model in made[2:] for row in model["figures"]):
        row |= {"accuracy": 0.05, "accuracy_of_texts": [0.04, 0.05, 0.06]}
    assert "**agrees**" in verdicts(page(made))[line]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_can_fail_and_can_hold(claim):
    """The best that figures can be, and the worst."""
    weights = defaultdict(float)
    for term in (term for terms in claim.sums for term in terms):
        weights[term.method, term.kind, term.times] += term.weight
    words = []
    for sign in (1, -1):
        ours = ZooFigures(as_wished(lambda *at, sign=sign: 0.5 + 0.4 * math.copysign(1, sign * weights[at]), weights))
        words.append(judge(claim, ours.sum, POINTS).word)
    assert words == ["agrees", "disagrees at this size"]


def as_wished(share, weights):
    """Models of two seeds, whose accuracy is a function of method, kind and length."""
    return [
        {
            "method": name,
            "seed": seed,
            "figures": [figures(times, kind, share(name, kind, times)) for kind in KINDS for times in TIMES],
        }
        for name in {name for name, *_ in weights}
        for seed in range(2)
    ]


def test_a_method_that_is_trained_as_none_is_refused(tmp_path, monkeypatch):
    """With a window of the trained length and ReRoPE left out in training, only its name differs from plain RoPE."""
    monkeypatch.setitem(METHODS, "rerope", ZooMethod("rerope+log_n"))
    with pytest.raises(DoesNotFit, match=r"rerope\+log_n changes nothing in a model of 4 layers"):
        run(tmp_path, "rope,rerope")
    assert not (tmp_path / "zoo").exists()  # before the methods that come first are trained


def test_results_hold_what_pages_of_the_claims_show(tmp_path):
    run(tmp_path, "rope,alibi")
    records = {
        one.claim.name: one.record for one in verdicts_of(json.loads((tmp_path / "zoo" / "zoo.json").read_text()))
    }
    inside = [one.claim for one in inside_verdicts([])]
    assert len(inside) == len({claim.name for claim in inside}) > 10
    assert list(records) == [claim.name for claim in (*CLAIMS, reruns.CLAIM, *inside)]
    assert records["kerple-flat"]["reason"] == "not measured"
    curves = records["alibi-3x"]["curves"]
    assert [point[0] for point in curves["alibi, non-repeated"]] == list(TIMES)


def test_methods_without_training_read_the_models_of_others(tmp_path, monkeypatch):
    run(tmp_path, "rope_under_pi,rope_under_twice_yarn,marked_under_streaming,marked_with_newlines")
    assert sorted(place.name for place in (tmp_path / "zoo" / "models").iterdir()) == ["marked-0", "rope-0"]
    rows = {
        (model["method"], row["kind"], row["times"]): row["loss"]
        for model in json.loads((tmp_path / "zoo" / "zoo.json").read_text())["models"]
        for row in model["figures"]
    }
    ids = torch.tensor(json.loads((tmp_path / "zoo" / "held_out.json").read_text())["tokens"])
    rope, marked = (rw.load(tmp_path / "zoo" / "models" / f"{name}-0" / "model") for name in ("rope", "marked"))
    assert rows["rope_under_pi", "non-repeated", 1] == pytest.approx(loss(rope, ids[:, -16:]), abs=1e-4)
    rw.extend(rope, "pi", target_len=160)
    assert rows["rope_under_pi", "non-repeated", 10] == pytest.approx(loss(rope, ids), abs=1e-4)
    plain = rw.load(tmp_path / "zoo" / "models" / "rope-0" / "model")
    rw.extend(plain, "by_parts+yarn_temperature:factor=4,coefficient=0.2", target_len=64)  # the factor of the length
    assert rows["rope_under_twice_yarn", "non-repeated", 4] == pytest.approx(loss(plain, ids[:, -64:]), abs=1e-4)
    rw.extend(marked, "streaming", target_len=64)
    text = ids[:, -64:].clone()
    text[:, 0] = marked.config.eos_token_id
    assert rows["marked_under_streaming", "non-repeated", 4] == pytest.approx(loss(marked, text), abs=1e-4)
    newline = tokenizer_of(tmp_path).encode("\n", add_special_tokens=False)[0]
    text[:, :4] = newline
    assert rows["marked_with_newlines", "non-repeated", 4] == pytest.approx(loss(marked, text), abs=1e-4)


def test_learned_positions_are_interpolated_beyond_their_table(tmp_path):
    run(tmp_path, "learned")
    (found,) = json.loads((tmp_path / "zoo" / "zoo.json").read_text())["models"]
    rows = {(row["kind"], row["times"]): row["loss"] for row in found["figures"]}
    model = rw.load(tmp_path / "zoo" / "models" / "learned-0" / "model")
    ids = torch.tensor(json.loads((tmp_path / "zoo" / "held_out.json").read_text())["tokens"])
    assert rows["non-repeated", 1] == pytest.approx(loss(model, ids[:, -16:]), abs=1e-4)
    table = model.transformer.wpe.weight.data
    stretched = torch.nn.functional.interpolate(table.T[None], size=64, mode="linear", align_corners=False)[0].T
    model.transformer.wpe = torch.nn.Embedding.from_pretrained(stretched)
    assert rows["non-repeated", 4] == pytest.approx(loss(model, ids[:, -64:]), abs=1e-4)


def test_sinusoidal_positions_go_on_by_their_formula(tmp_path):
    run(tmp_path, "sinusoidal")
    (found,) = json.loads((tmp_path / "zoo" / "zoo.json").read_text())["models"]
    rows = {(row["kind"], row["times"]): row["loss"] for row in found["figures"]}
    model = rw.load(tmp_path / "zoo" / "models" / "sinusoidal-0" / "model")
    table = [
        [wave(place / 10_000 ** (pair / 16)) / 10 for pair in range(16) for wave in (math.sin, math.cos)]
        for place in range(160)
    ]
    assert torch.equal(model.transformer.wpe.weight.data, torch.tensor(table[:16]))  # not trained
    ids = torch.tensor(json.loads((tmp_path / "zoo" / "held_out.json").read_text())["tokens"])
    assert rows["non-repeated", 1] == pytest.approx(loss(model, ids[:, -16:]), abs=1e-4)
    model.transformer.wpe = torch.nn.Embedding.from_pretrained(torch.tensor(table))
    for times in (4, 10):
        assert rows["non-repeated", times] == pytest.approx(loss(model, ids[:, -16 * times :]), abs=1e-4)


def spread_over_seeds(**accuracies):
    results = {"models": models(**accuracies)}
    return {one.claim.name: (one.reason or one.word) for one in verdicts_of(results)}[reruns.CLAIM.name]


def test_runs_are_compared_by_their_spread_over_seeds():
    """At 1x every seed has 0.5."""
    assert spread_over_seeds(rope=[0.1, 0.2], alibi=[0.3, 0.41], nope=[0.2, 0.11]) == "agrees"
    assert spread_over_seeds(rope=[0.1, 0.2], alibi=[0.3, 0.3], nope=[0.2, 0.2]) == "undecided"
    assert spread_over_seeds(rope=[0.1, 0.2], alibi=[0.3, 0.41], rope_under_pi=[0.2, 0.9]) == "not measured"
    assert spread_over_seeds(rope=[0.1], alibi=[0.3], nope=[0.2]) == "not measured"


def test_pairs_are_fast_if_they_make_a_whole_rotation():
    """In 64 tokens the pairs of a head of 24 have wavelengths of 6.3, 13.5, 29.2, 62.8, 135.4 tokens and more."""
    shape = replace(SHAPE, width=96, heads=4, trained_len=64)
    slow = METHODS["rope_with_slow_pairs_slowed"].line(shape)
    fast = METHODS["rope_with_fast_pairs_slowed"].line(shape)
    assert slow == "by_shares:factor=8,shares=[0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]"
    assert fast == "by_shares:factor=8,shares=[1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]"


def tokenizer_of(path):
    return AutoTokenizer.from_pretrained(path / "zoo" / "tokenizer")


def loss(model, ids):
    with torch.no_grad():
        logits = model(input_ids=ids).logits[:, :-1]
    return float(cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")[:, -15:].mean())


@pytest.mark.parametrize("name", UNTRAINED)
def test_every_method_without_training_has_a_line_for_every_length(name):
    for times in TIMES:
        line = METHODS[name].line(SHAPE, times)
        assert not line or rw.parse(line, trained_len=16, target_len=16 * times)


@pytest.mark.parametrize("name", UNTRAINED)
def test_what_is_not_trained_reads_models_that_are(name):
    assert METHODS[name].of in TRAINED
    assert METHODS[name].newlines or METHODS[name].marked == TRAINED[METHODS[name].of].marked


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("longer_from_0", {"rows": 4}, "rows must be a multiple of 8, where rows become longer, got 4"),
        ("longer_from_20", {"rows": 8, "steps": 2}, "each share must be at least one step of 2"),
    ],
)
def test_what_a_later_method_refuses_is_refused_before_hours_of_training(tmp_path, method, given, words):
    with pytest.raises(RopewalkError, match=words):
        zoo(tmp_path / "zoo", ZooSettings(plan=replace(PLAN, **given), shape=SHAPE, methods=f"rope,{method}"))
    assert not (tmp_path / "zoo").exists()
    shape = replace(SHAPE, heads=1)
    with pytest.raises(InvalidValue, match="heads must be a multiple of 2, the key heads that are left, got 1"):
        zoo(tmp_path / "zoo", ZooSettings(plan=PLAN, shape=shape, methods="rope_to_2_kv_heads"))


def test_what_is_inside_models_that_have_learned_nothing_is_not_judged():
    terms = {"trained_len": 1, "distances": [0.0, 1.0], "counts": [1, 1], "texts": [[[[1.0, 0.0]]] * 4]}
    made = [{**model, "logit_terms": terms} for model in models(rope=[0.3, 0.3], qk_bias=[0.3, 0.3])]
    word = next(one for one in verdicts_of({"models": made}) if one.claim.name == "qk-bias-term-largest").word
    assert word != TOO_LITTLE
    for row in (row for model in made[2:] for row in model["figures"]):
        row["accuracy"] = 0.05
    judged_again = next(one for one in verdicts_of({"models": made}) if one.claim.name == "qk-bias-term-largest")
    assert (judged_again.reason, judged_again.above) == (TOO_LITTLE, [])
