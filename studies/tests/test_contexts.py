"""Claims about many contexts, from made-up results of `ropewalk compare`."""

import json

import pytest

from studies import contexts as module

COUNTS = (2, 16)


def results(losses, right=1.0):
    """Four questions for each rule; the last is half a nat harder."""
    rows = [
        {
            "task": rule,
            "length": 512 * count,
            "samples": [
                {"loss": loss + 0.5 * (n == 3), "right": n / 4 < right if count > 2 else True, "contexts": count}
                for n in range(4)
            ],
        }
        for rule, loss in losses.items()
        for count in COUNTS
    ]
    shorter = [{**row, "length": 512, "samples": [{**rows[0]["samples"][0], "loss": 99.0}]} for row in rows]
    every = [{"task": "context", "samples": []}, *rows, *shorter]
    return {"trained_len": 512, "candidates": [{"rows": every}]}


NO_ANSWERS = {"answers": []}


def judged(every, more):
    kept = {module.EVERY: module.answers_of(every), module.MORE: module.answers_of(more), module.RETRIEVAL: NO_ANSWERS}
    return module.verdicts(json.loads(json.dumps(kept)))


RULES = {
    module.MEAN: 2.0,
    module.MAX: 1.8,
    module.PRODUCT: 1.5,
    **{module.LEAST.format(beta): 1.0 for beta in module.BETAS},
}


NOTHING = {"trained_len": 512, "candidates": [{"rows": []}]}


def words(losses, **more):
    return {one.claim.name: (one.reason or one.word) for one in judged(results(losses, **more), NOTHING)}


def test_least_entropy_against_the_mean():
    assert words(RULES)["least-entropy"] == "agrees"
    assert words({**RULES, module.MEAN: 0.5})["least-entropy"] == "disagrees at this size"


def test_least_entropy_against_the_maximum():
    assert words(RULES)["maximum"] == "agrees"
    assert words({**RULES, module.MAX: 0.5})["maximum"] == "disagrees at this size"
    assert module.named(module.MAX) == "maximum (beta 0.25)"


def test_least_entropy_against_exact_naive_bayes():
    assert words(RULES)["exact"] == "agrees"
    assert words({**RULES, module.PRODUCT: 0.5})["exact"] == "disagrees at this size"
    assert module.named(module.PRODUCT) == "exact naive Bayes"


def test_the_best_beta():
    assert words(RULES)["beta"] == "undecided"  # all are equal
    others = {module.LEAST.format(beta): 1.2 for beta in ("0", "0.5", "1")}
    assert words({**RULES, **others})["beta"] == "agrees"


def test_many_contexts_against_few():
    """With four questions, all answered, the interval is wide; with many it is not."""
    assert words(RULES)["many-contexts"] == "undecided"
    assert words(RULES, right=0.0)["many-contexts"] == "disagrees at this size"
    many = results({module.LEAST.format("0.25"): 1.0})
    for row in many["candidates"][0]["rows"]:
        row["samples"] *= 20
    words_of_many = {one.claim.name: (one.reason or one.word) for one in judged(results(RULES), many)}
    assert words_of_many == {**words(RULES), "many-contexts": "agrees"}


def test_a_record_says_what_was_compared():
    first = judged(results(RULES), NOTHING)[0].record
    assert first["comparisons"][1]["compared"] == [
        "mean (beta 0.25) of 16 contexts",
        "least entropy (beta 0.25) of 16 contexts",
    ]
    assert first["curves"]["mean (beta 0.25)"][0][:2] == pytest.approx([2, 2.125])


def beside_retrieval(nbce, found):
    """Of 40 questions; shares of right answers from 16 contexts."""
    rows = [
        {
            "task": rule,
            "length": 512 * count,
            "samples": [{"loss": 1.0, "right": n < 40 * share, "contexts": count} for n in range(40)],
        }
        for rule, share in {module.LEAST.format("0.25"): nbce, module.RETRIEVED: found}.items()
        for count in COUNTS
    ]
    return {"trained_len": 512, "candidates": [{"rows": rows}]}


@pytest.mark.parametrize(
    ("nbce", "found", "word"),
    [(1.0, 0.5, "agrees"), (0.3, 1.0, "disagrees at this size"), (0.9, 0.9, "undecided")],
)
def test_nbce_in_place_of_retrieval(nbce, found, word):
    answers = module.answers_of(beside_retrieval(nbce, found))
    kept = {module.EVERY: module.answers_of(results(RULES)), module.MORE: [], module.RETRIEVAL: {"answers": answers}}
    judged = {one.claim.name: one for one in module.verdicts(kept)}["retrieval"]
    assert judged.word == word
    assert judged.above[0].value == pytest.approx(nbce - found + 0.1)
    assert list(judged.curves) == ["least entropy (beta 0.25)", "the context that BM25 retrieves"]


def test_what_is_beside_retrieval_is_added_to_what_is_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PLACE", tmp_path / "contexts.json")
    module.PLACE.write_text(json.dumps({"command": "x", module.EVERY: [], module.MORE: []}))
    made = {"made": {}, "marks": {}, "command": "ropewalk compare --out /tmp/x", **beside_retrieval(1.0, 1.0)}
    (tmp_path / "results.json").write_text(json.dumps(made))
    kept = module.collect_retrieval(tmp_path)
    assert kept["command"] == "x"
    assert kept[module.RETRIEVAL]["command"] == "ropewalk compare --out FOLDER"
    assert {one["rule"] for one in kept[module.RETRIEVAL]["answers"]} == {module.LEAST.format("0.25"), module.RETRIEVED}
