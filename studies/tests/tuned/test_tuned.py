"""The tuning table, end to end with models of a few steps: measured, kept, resumed; and its page."""

import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st
from torch.nn.functional import cross_entropy

import ropewalk as rw
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue, UnknownName, Unreadable
from ropewalk.hf.attach.handle import handle_of
from ropewalk.measure.metrics.intervals import crossed_mean, share
from ropewalk.measure.metrics.losses import token_losses
from ropewalk.train.recipes.recipe import run as run_recipe
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.train import TrainingPlan

from studies.__main__ import study
from studies.tuned import tuned as module, tuned_page as module_of_page
from studies.tuned.claims import CLAIMS, FAR_CLAIMS, SHORT, verdicts as verdicts_of
from studies.tuned.figures import ALL, FIFTH, LossTerm, TunedFigures
from studies.tuned.tuned import FARTHER, METHODS, TunedSettings, tuned
from studies.tuned.tuned_page import tuned_page
from train.texts import folder_of, tokenizer

SHAPE = ModelShape(vocabulary=300, width=32, inner=48, layers=2, heads=2, trained_len=48)
PLAN = TrainingPlan(steps=5, rows=1, progress=False)


@pytest.fixture
def run(tmp_path):
    new_small_model(SHAPE).save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    corpus = folder_of(tmp_path / "texts", count=240, words=300)

    def begin(methods, **settings):
        read = {"model": str(tmp_path / "base"), "corpus": corpus, "texts": 2, "passkeys": 1}
        made = TunedSettings(**{"plan": PLAN, "methods": methods, **read, "seeds": 1, **settings})
        return tuned(tmp_path / "out", made)

    return begin


def figures_of(folder):
    models = json.loads((folder / "tuned.json").read_text())["models"]
    return {(m["method"], m["steps"], m["seed"]): {row["times"]: row for row in m["figures"]} for m in models}


def test_figures_are_those_of_the_models(run, tmp_path):
    assert run("none,pi,dynamic,drope") == tmp_path / "out" / "tuned.md"
    measured = figures_of(tmp_path / "out")
    assert set(measured) == {(name, steps, 0) for name in ("none", "pi", "dynamic", "drope") for steps in (0, 1, 5)}
    who = module._subject(TunedSettings(plan=PLAN, model=str(tmp_path / "base"), corpus=f"folder:{tmp_path / 'texts'}",
                                        texts=2), tmp_path / "o")  # fmt: skip
    texts = torch.stack(who.passages(2))
    for (name, steps), times in {("none", 0): 2, ("pi", 5): 8, ("drope", 5): 8, ("dynamic", 1): 1}.items():
        folder = tmp_path / "base" if not steps else tmp_path / "out" / "models" / f"{name}-{steps}-0" / "model"
        model = rw.load(folder)
        if name == "drope":
            rw.extend(model, "log_n", target_len=384)
        ids = texts[:, -times * 48 :]
        with torch.no_grad():
            logits = model(input_ids=ids).logits[:, :-1]
        losses = cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")[:, -24:].mean(1)
        assert measured[name, steps, 0][times]["losses"] == pytest.approx(losses.tolist(), abs=1e-4)
    assert measured["pi", 0, 0][8]["losses"] != measured["none", 0, 0][8]["losses"]
    assert measured["dynamic", 0, 0][1]["losses"] == pytest.approx(measured["none", 0, 0][1]["losses"], abs=1e-6)
    assert not list((tmp_path / "out" / "models").glob("*/checkpoint-*"))
    page = (tmp_path / "out" / "tuned.md").read_text()
    assert "| drope | 5 | 1 |" in page
    assert "not measured" in page  # yarn


@pytest.mark.nightly
def test_as_many_tokens_at_the_trained_length_as_in_long_rows(run, tmp_path):
    run("none,short,drope")
    rows = {}
    for name in ("none", "short", "drope"):
        plan = json.loads(next((tmp_path / "out" / "models" / f"{name}-5-0").glob("plan.json")).read_text())
        rows[name] = plan["rows"]
    assert rows == {"none": 1, "short": 8, "drope": 8}


def test_the_control_is_the_base_model_trained_on_and_is_not_read_untrained(run, tmp_path):
    run("none,short")
    measured = figures_of(tmp_path / "out")
    assert {steps for name, steps, _ in measured if name == "short"} == {1, 5}
    model = rw.load(tmp_path / "out" / "models" / "short-5-0" / "model")
    assert model.config.max_position_embeddings == 48
    assert model.config.rope_parameters["rope_type"] == "default"
    words = {one.claim.name: (one.reason or one.word) for one in verdicts_of(results({**EQUAL, ("short", ALL): 1.9}))}
    assert words["yarn-harm"] == "agrees"
    assert (
        words["yarn-harm-control"]
        == words["pi-harm-control"]
        == words["drope-harm-control"]
        == "disagrees at this size"
    )


@pytest.mark.nightly
def test_dynamic_scaling_is_read_and_not_trained(run, tmp_path):
    run("none,yarn_4x,dynamic_yarn")
    measured = figures_of(tmp_path / "out")
    assert {(name, steps) for name, steps, _ in measured} == {
        *(("none", steps) for steps in (0, 1, 5)),
        ("yarn_4x", 0),
        ("dynamic_yarn", 0),
    }
    base, static, dynamic = (measured[name, 0, 0] for name in ("none", "yarn_4x", "dynamic_yarn"))
    assert dynamic[1]["losses"] == pytest.approx(base[1]["losses"], abs=1e-6)
    assert static[1]["losses"] != pytest.approx(base[1]["losses"], abs=1e-6)
    model = rw.load(tmp_path / "base")
    rw.extend(model, "yarn:factor=4")
    who = module._subject(TunedSettings(plan=PLAN, model=str(tmp_path / "base"), corpus=f"folder:{tmp_path / 'texts'}",
                                        texts=2), tmp_path / "o")  # fmt: skip
    ids = torch.stack(who.passages(2))
    losses = token_losses(model, ids).losses_bn[:, -24:].double().mean(1)
    assert static[8]["losses"] == pytest.approx(losses.tolist(), abs=1e-4)


@pytest.mark.nightly
def test_a_table_is_measured_on_the_texts_it_began_with(run, tmp_path):
    """Also where the corpus has changed since: another machine has other packages."""
    run("none,pi", texts=3)
    first = json.loads((tmp_path / "out" / "tuned.json").read_text())
    assert len(first["projects"]) == 3
    assert first["projects"] == json.loads((tmp_path / "out" / "held_out.json").read_text())["projects"][:3]
    before = figures_of(tmp_path / "out")
    for n in range(240):
        (tmp_path / "texts" / f"{n:03}.txt").write_text("other words of another text " * 80 + f"{n}")
    (tmp_path / "out" / "measured" / "pi-0-0.json.gz").unlink()
    run("none,pi", texts=3)
    assert figures_of(tmp_path / "out")["pi", 0, 0] == before["pi", 0, 0]


@pytest.mark.nightly
def test_stored_texts_that_do_not_fit_are_refused(run, tmp_path):
    run("none")
    stored = tmp_path / "out" / "held_out.json"
    good = json.loads(stored.read_text())
    projects, tokens = good["projects"], good["tokens"]
    for wrong in (
        {"projects": ["a"], "tokens": [[1, 2]]},
        [1, 2],
        {"tokens": tokens},
        {**good, "projects": projects[:3]},
        {**good, "projects": [*projects, "more"]},
        {**good, "projects": "abcdefgh"},
        {**good, "tokens": [[float(token) for token in row] for row in tokens]},
        {**good, "tokens": list(zip(*tokens, strict=True))},
    ):
        stored.write_text(json.dumps(wrong))
        with pytest.raises(Unreadable, match=r"held_out.json must be 8 texts of 384 tokens, each with its project"):
            run("none")
    stored.unlink()
    with pytest.raises(Unreadable, match=r"bring back the file that the table was begun with, or begin in another"):
        run("none,pi")


@pytest.mark.nightly
def test_it_resumes_with_what_is_missing(run, tmp_path, monkeypatch):
    class Killed(Exception):
        pass

    trained, original = [], module._train

    def train(place, *arguments, **named):
        if len(trained) == 1:
            raise Killed
        trained.append(place.name)
        return original(place, *arguments, **named)

    monkeypatch.setattr(module, "_train", train)
    with pytest.raises(Killed):
        run("none,pi")
    before = figures_of(tmp_path / "out")
    assert set(before) == {("none", 0, 0), ("pi", 0, 0), ("none", 1, 0)}
    monkeypatch.setattr(module, "_train", original)
    run("none,pi")
    after = figures_of(tmp_path / "out")
    assert len(after) == 6
    assert all(after[key] == figures for key, figures in before.items())


def test_measurements_of_another_model_are_not_mixed(run, tmp_path):
    """A folder of the same name may hold other weights by now."""
    run("none")
    assert all("versions" in one["made"] for one in json.loads((tmp_path / "out" / "tuned.json").read_text())["models"])
    model = new_small_model(SHAPE)
    with torch.no_grad():
        model.lm_head.weight.mul_(1.001)
    model.save_pretrained(tmp_path / "base")
    with pytest.raises(Conflict, match=r"out has measurements of another model: its weights differ; bring back"):
        run("none,pi")


@pytest.mark.nightly
def test_a_table_of_few_steps_goes_on_with_more(run, tmp_path):
    run("none,pi")
    before = figures_of(tmp_path / "out")
    run("none,pi", plan=replace(PLAN, steps=10))
    after = figures_of(tmp_path / "out")
    assert {steps for _, steps, _ in after} == {0, 1, 2, 5, 10}
    assert all(after[key] == figures for key, figures in before.items())
    records = {
        one.claim.name: one.record for one in verdicts_of(json.loads((tmp_path / "out" / "tuned.json").read_text()))
    }
    assert list(records["pi-few-steps"]["curves"]) == ["pi after 10 steps", "pi after 2 steps"]


def test_what_is_refused(run):
    with pytest.raises(UnknownName, match=r"tuned has no method 'magic'\. It has: none, pi"):
        run("none,magic")
    with pytest.raises(InvalidValue, match=r"corpus must be one with a held-out part, .*, got 'all:python'"):
        run("none", corpus="all:python")


def test_a_table_of_another_longest_length(run, tmp_path):
    """Rows of half the length have as many tokens a step; a second method reads the weights of the first."""
    run("base,yarn_half,yarn_half_dynamic", longest=4)
    measured, models = figures_of(tmp_path / "out"), tmp_path / "out" / "models"
    assert {key: list(rows) for key, rows in measured.items()} == {
        ("base", 0, 0): [1, 2, 4],
        ("yarn_half", 0, 0): [1, 2, 4],
        **{(name, steps, 0): [1, 2, 4] for name in ("yarn_half", "yarn_half_dynamic") for steps in (1, 5)},
    }
    assert sorted(path.name for path in models.iterdir()) == ["yarn_half-1-0", "yarn_half-5-0"]
    assert json.loads((models / "yarn_half-5-0" / "plan.json").read_text())["rows"] == 2
    config = rw.load(models / "yarn_half-5-0" / "model").config
    assert (config.rope_parameters["factor"], config.max_position_embeddings) == (2, 96)
    static, dynamic = (measured[name, 5, 0] for name in ("yarn_half", "yarn_half_dynamic"))
    for times in (1, 2):  # where it was trained
        assert dynamic[times]["losses"] == pytest.approx(static[times]["losses"], abs=1e-6)
    assert dynamic[4]["losses"] != pytest.approx(static[4]["losses"], abs=1e-6)
    made = json.loads((tmp_path / "out" / "tuned.json").read_text())
    assert (made["longest"], verdicts_of(made)) == (4, [])
    page = (tmp_path / "out" / "tuned.md").read_text()
    assert "Set to 96 tokens and trained at that length: `yarn_half`, `yarn_half_dynamic`. " in page
    assert "What the sources claim" not in page
    assert "| base | +0.000" not in page


@pytest.mark.parametrize("longest", [0, 1, 2, 3, 12, 512, 4096, -4])
def test_the_longest_length_is_a_power_of_two(longest):
    with pytest.raises(InvalidValue, match=f"longest must be a power of two from 4 to 256, got {longest}"):
        TunedSettings(plan=PLAN, longest=longest)


def test_a_table_that_is_older_than_a_setting_goes_on(run, tmp_path):
    """It began with what is the default now."""
    run  # noqa: B018 - it makes the base model and the corpus
    texts = {"model": str(tmp_path / "base"), "corpus": f"folder:{tmp_path / 'texts'}", "texts": "2", "passkeys": "1"}
    given = {"methods": "base", "seeds": "1", "steps": "5", "rows": "1", "progress": "false", **texts}
    run_recipe(study("tuned"), tmp_path / "out", given)
    stored = tmp_path / "out" / "recipe.json"
    older = {name: value for name, value in json.loads(stored.read_text()).items() if name != "longest"}
    stored.write_text(json.dumps(older))
    run_recipe(study("tuned"), tmp_path / "out", given)
    with pytest.raises(Conflict, match="began with other values of longest"):
        run_recipe(study("tuned"), tmp_path / "out", {**given, "longest": "4"})


def test_what_was_logged_while_training_is_kept(run, tmp_path):
    run("none,pi", plan=replace(PLAN, log_every=1))
    models = json.loads((tmp_path / "out" / "tuned.json").read_text())["models"]
    for model in models:
        logged = model.get("training")
        assert bool(logged) == bool(model["steps"])
        if logged:
            assert logged["step"] == list(range(1, model["steps"] + 1))
            assert all(map(math.isfinite, [*logged["loss"], *logged["grad_norm"]]))


def far(losses, gradients=None, seeds=3):
    """A table of the lengths up to 32x: losses by method and length, and the norms of gradients by method."""
    models = [
        {
            "method": method,
            "steps": steps,
            "seed": seed,
            "figures": [
                {"times": times, "losses": [losses.get((method, times), 2.0) + 0.001 * text for text in range(3)]}
                for times in (1, 2, 4, 8, 16, 32)
            ],
            **({"training": {"grad_norm": gradients[method][seed]}} if gradients and steps else {}),
        }
        for method in FARTHER
        for steps in ((0,) if method == "base" else (20, 100))
        for seed in range(seeds if steps else 1)
    ]
    return {"models": models, "plan": {"steps": 100}, "trained_len": 64, "longest": 32}


def test_claims_of_16_and_32_times_the_trained_length():
    words = {one.claim.name: (one.reason or one.word) for one in verdicts_of(far({}))}
    assert words == {
        "pi-16x": "agrees",
        "yarn-32x": "agrees",
        "dynamic-after-training": "undecided",
        "ntk-unstable": "not measured",
    }
    losses = {("pi_half", 16): 2.1, ("yarn_beyond", 32): 2.1, ("yarn_half", 32): 2.5, ("yarn_half_dynamic", 32): 2.2}
    words = {one.claim.name: (one.reason or one.word) for one in verdicts_of(far(losses))}
    assert [words[name] for name in ("pi-16x", "yarn-32x")] == ["disagrees at this size"] * 2
    assert words["dynamic-after-training"] == "agrees"
    steep = verdicts_of(far({**losses, ("yarn_half_dynamic", 32): 2.3}))
    assert {one.claim.name: (one.reason or one.word) for one in steep}[
        "dynamic-after-training"
    ] == "disagrees at this size"


def test_stability_is_the_largest_gradient_over_the_median_by_seed():
    calm, wild = [[1, 2, 4, 2, 2]] * 3, [[1, 2, 20, 2, 2], [1, 2, 21, 2, 2], [1, 2, 19, 2, 2]]
    logged = {name: wild if name == "ntk_half" else calm for name in FARTHER}
    (judged,) = (one for one in verdicts_of(far({}, logged)) if one.claim.name == "ntk-unstable")
    assert judged.word == "agrees"
    assert judged.above[0].value == pytest.approx(sum(math.log10(peak / 4) for peak in (20, 21, 19)) / 3)
    same = dict.fromkeys(FARTHER, calm)
    assert verdicts_of(far({}, same))[-1].word == "undecided"
    assert verdicts_of(far({}, logged, seeds=1))[-1].reason == "a single seed"
    for nothing in ([], [0.0, 0.0]):  # too few steps for a report
        assert verdicts_of(far({}, dict.fromkeys(FARTHER, [nothing] * 3)))[-1].reason == "not measured"


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_one_that_the_model_can_have(name):
    method = METHODS[name].at(8)
    for line in [method.read_under] if method.untrained else [method.line, *filter(None, [method.beyond])]:
        rw.parse(line, trained_len=40, target_len=320)


def results(losses, seeds=3):
    """Losses by method and budget at every length; three texts, and seeds, that differ a little."""
    models = [
        {
            "method": method,
            "steps": {"": 0, FIFTH: 20, ALL: 100}[budget],
            "seed": seed,
            "figures": [
                {
                    "times": times,
                    "losses": [loss + 0.001 * (text + seed) for text in range(3)],
                    "passkeys": [True, False],
                }
                for times in (1, 2, 4, 8)
            ],
        }
        for (method, budget), loss in losses.items()
        for seed in range(seeds if budget else 1)
    ]
    read = {"model": "default", "corpus": "python", "texts": 3, "passkeys": 2, "puzzles": {}}
    plan = {"steps": 100, "rows": 1, "accumulate": 1, "learning_rate": 2e-4}
    return {"models": models, "plan": plan, "trained_len": 512, "read": read}


EQUAL = {(method, budget): 2.0 for method in METHODS for budget in ("", FIFTH, ALL)}


def page_of(made):
    return tuned_page(made, verdicts_of(made))


def verdicts(losses):
    return [line for line in page_of(results(losses)).splitlines() if line.startswith("- ")]


def test_a_sum_is_over_texts_and_seeds():
    ours = TunedFigures(results({**EQUAL, ("pi", ALL): 1.5}))
    sums = [ours.sum(terms) for claim in CLAIMS for terms in claim.sums if claim.text.startswith("PI beats")]
    assert [one.value for one in sums] == pytest.approx([0.0, 0.5])
    assert sums[1].low > 0.49
    untrained = ours.sum((LossTerm(1, "pi", ""), LossTerm(-1, "ntk", "")))
    assert untrained.value == 0
    assert untrained.of == 3  # texts; no seeds
    harm = TunedFigures(results(EQUAL)).sum((SHORT, LossTerm(-1, "pi", ALL, 1)))
    assert harm.value == pytest.approx(-0.001)  # seeds 0, 1, 2 are 0.000, 0.001, 0.002 above the base model


def test_texts_of_a_project_are_drawn_together():
    found = [
        TunedFigures({**results(EQUAL), "projects": projects}).sum([LossTerm(1, "pi", ALL)])
        for projects in (["a", "a", "b"], ["a", "b", "c"], [])
    ]
    table = [[2.0 + 0.001 * (text + seed) for text in range(3)] for seed in range(3)]
    assert found[0] == crossed_mean(table, groups=["a", "a", "b"])
    assert found[1] == found[2] == crossed_mean(table)
    assert found[0].low < found[1].low


def test_a_verdict_follows_from_the_intervals():
    best = verdicts({**EQUAL, ("yarn", ALL): 1.5, ("pi", ALL): 1.8})
    assert any(
        line.startswith("- Trained, YaRN is the best") and "**agrees (one base model trained 3 times)**" in line
        for line in best
    )
    assert any(
        line.startswith("- Trained, a larger base (ABF)")
        and "**disagrees at this size (one base model trained 3 times)**" in line
        for line in best
    )
    harmed = verdicts({**EQUAL, ("pi", ALL): 2.1})
    assert any(
        line.startswith("- PI with all steps harms")
        and "**disagrees at this size (one base model trained 3 times)**: 2.001 against 2.102, less 0.020 nats" in line
        for line in harmed
    )
    equal = verdicts(EQUAL)
    assert any(
        line.startswith("- PI with all steps harms")
        and "**agrees (one base model trained 3 times)**: 2.001 against 2.002, less 0.020 nats" in line
        for line in equal
    )
    assert not any("nan" in line or str(math.inf) in line for line in equal)


def test_every_claim_is_of_methods_that_are_trained():
    for claim in (*CLAIMS, *FAR_CLAIMS):
        assert {term.method for terms in claim.sums for term in terms} <= set(METHODS)


def test_passkeys_and_harm_are_in_the_page():
    page = page_of(results({**EQUAL, ("pi", ALL): 2.1}))
    assert "| pi | 100 | 3 | 50% [9%, 91%] |" in page  # two prompts, whatever the seeds
    assert "| pi | +0.000 [+0.000, +0.000] | +0.001" in page
    assert "4,096 tokens" in page


@given(
    st.lists(st.booleans(), min_size=1, max_size=12).flatmap(
        lambda one: st.tuples(st.just(one), st.integers(1, 5), st.randoms())
    )
)
def test_passkeys_are_of_as_many_prompts_as_there_are(drawn):
    """A model that is trained again is asked the same ones: seeds that agree say no more than one."""
    one, seeds, random = drawn
    assert module_of_page._keys([{"passkeys": one}] * seeds) == module_of_page._keys([{"passkeys": one}])
    answers = [random.choices([True, False], k=len(one)) for _ in range(seeds)]
    got = module_of_page._keys([{"passkeys": each} for each in answers])
    right = share(sum(map(sum, answers)) / seeds, len(one))  # by prompt: the mean of the means
    assert got == f"{right.value:.0%} [{right.low:.0%}, {right.high:.0%}]"


def test_what_the_interval_of_passkeys_is_over_is_said():
    assert "50% [25%, 75%]" in module_of_page._keys([{"passkeys": [True, False] * 6}] * 3)
    assert module_of_page._keys([{"passkeys": []}] * 3) == "-"
    said = "each prompt counts with its mean over seeds, and the 95 % interval is over prompts, not over seeds"
    assert said in page_of(results(EQUAL))


def test_results_hold_what_pages_of_the_claims_show(run, tmp_path):
    run("none,pi")
    records = {
        one.claim.name: one.record for one in verdicts_of(json.loads((tmp_path / "out" / "tuned.json").read_text()))
    }
    assert records["yarn-best"]["reason"] == "not measured"
    assert list(records["pi-few-steps"]["curves"]) == ["pi after 5 steps", "pi after 1 steps"]


def test_a_single_seed_is_not_judged():
    """Training with another seed may say another thing; what is not trained has no seed."""
    words = {one.claim.name: (one.reason or one.word) for one in verdicts_of(results(EQUAL, seeds=1))}
    assert words["yarn-best"].startswith("a single seed")
    assert words["static-harm"] in {"agrees", "disagrees at this size", "undecided"}


def test_a_loss_that_is_not_finite_is_kept_and_not_judged(run, tmp_path, monkeypatch):
    """A schedule may break a model; the table goes on, and says so."""
    original = module._measured

    def broken(subject, **named):
        rows = original(subject, **named)
        if subject.model.config.rope_parameters["rope_type"] != "default" or handle_of(subject.model):
            rows[-1]["losses"][0] = math.nan  # under a schedule
        return rows

    monkeypatch.setattr(module, "_measured", broken)
    run("none,pi")
    run("none,pi")
    text = (tmp_path / "out" / "tuned.json").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert figures_of(tmp_path / "out")["pi", 0, 0][8]["losses"][0] is None
    assert "| pi | 5 | 1 |" in (page := (tmp_path / "out" / "tuned.md").read_text())
    assert "not finite" in page
    made = json.loads(text)
    words = {one.claim.name: (one.reason or one.word) for one in verdicts_of(made)}
    assert words["pi-1000-steps"] == "a single seed"
    two = {**made, "models": made["models"] + [{**one, "seed": 1} for one in made["models"] if one["steps"]]}
    pi = next(one for one in verdicts_of(two) if one.claim.name == "pi-1000-steps")
    assert (pi.reason, pi.above) == ("a figure is not finite", [])
    assert [times for times, _ in pi.curves["pi after 5 steps"]] == [1, 2, 4]


def test_what_was_measured_is_kept_where_training_is_refused(tmp_path, run, monkeypatch):
    """Schedules are read without training first, which takes hours with a large model."""

    def refuse(*_, **__):
        raise DoesNotFit("rows", "fewer", 9)

    monkeypatch.setattr(module, "_train", refuse)
    run  # noqa: B018 - it makes the base model and the corpus
    texts = {"model": str(tmp_path / "base"), "corpus": f"folder:{tmp_path / 'texts'}", "texts": "2", "passkeys": "1"}
    given = {"methods": "none,pi", "seeds": "1", "steps": "5", "rows": "1", "progress": "false", **texts}
    with pytest.raises(DoesNotFit, match="rows must be fewer"):
        run_recipe(study("tuned"), tmp_path / "out", given)
    assert sorted(path.name for path in (tmp_path / "out" / "measured").iterdir()) == [
        "none-0-0.json.gz",
        "pi-0-0.json.gz",
    ]


def test_a_table_that_does_not_say_of_which_model_it_is_does_not_go_on(run, tmp_path):
    run("none")
    (tmp_path / "out" / "base.json").unlink()
    with pytest.raises(Conflict, match=r"has measurements, and no base.json that says of which model; bring back the"):
        run("none,pi")


def test_drope_is_trained_as_its_source_does(run, tmp_path):
    run("none,drope", plan=replace(PLAN, learning_rate=2e-4, weight_decay=0.1, decay=0.3))
    plans = {
        name: json.loads((tmp_path / "out" / "models" / f"{name}-5-0" / "plan.json").read_text())
        for name in ("none", "drope")
    }
    read = ("learning_rate", "weight_decay", "decay")
    assert [plans["none"][name] for name in read] == [2e-4, 0.1, 0.3]
    assert [plans["drope"][name] for name in read] == [3e-4, 0.0, 0.97]
