"""Claims about released models, from made-up configs; and that the stored record is what its values say."""

import json

import pytest

from studies import released as module

STATED = {"a": ["yarn"], "b": ["yarn", module.PLAIN], "c": [module.PLAIN]}
ROWS = [
    {"model": "Llama 2 70B", "key": "key heads", "value": 8},
    {"model": "Mistral 7B", "key": "key heads", "value": 8},
    {"model": "Code Llama 7B", "key": "base", "value": 1_000_000},
]


def words(rows=ROWS, stated=STATED):
    kept = {module.READ: rows, module.SCHEDULES: stated}
    return {one.claim.name: one.word for one in module.verdicts(kept)}


def test_values_hold_only_if_they_are_exact():
    assert words()["eight-key-heads"] == words()["code-llama-base"] == "agrees"
    for row in range(3):
        other = [{**one, "value": one["value"] + (n == row)} for n, one in enumerate(ROWS)]
        changed = {"eight-key-heads"} if row < 2 else {"code-llama-base"}
        assert {name for name, word in words(other).items() if word == "disagrees at this size"} == changed


def test_makers_are_counted_once_and_only_if_they_change_the_rotation():
    assert module.yarn_share(STATED)[:1] == (1.0,)
    assert module.yarn_share({**STATED, "d": ["linear"], "e": ["llama3", "longrope"]}).value == 0.5
    assert module.yarn_share(STATED).of == 2


def test_the_claim_on_yarn_can_hold_and_fail():
    assert words(stated={str(n): ["yarn"] for n in range(20)})["yarn-mostly"] == "agrees"
    assert words(stated={str(n): ["linear"] for n in range(20)})["yarn-mostly"] == "disagrees at this size"
    assert words()["yarn-mostly"] == "undecided"


@pytest.mark.parametrize(
    ("config", "schedule"),
    [
        ({"rope_scaling": None}, "plain rotation"),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "yarn"),
        ({"text_config": {"rope_parameters": {"rope_type": "llama3"}}}, "llama3"),
        ({"rope_parameters": {"full": {"rope_type": "linear"}, "sliding": {"rope_type": "default"}}}, "linear"),
        ({"rope_scaling": {"type": "mrope"}}, "plain rotation"),
        ({"dual_chunk_attention_config": {"chunk_size": 8}}, "dual chunks"),
    ],
)
def test_schedules_of_configs(config, schedule):
    assert module.schedule_of(config) == schedule
    one = {"source": "config.json of some-one/Model-1 on the hub", "config": config}
    assert module.schedules([one, one]) == {"some-one": [schedule]}


def test_a_source_without_an_account_is_refused():
    with pytest.raises(ValueError, match="no account in 'somewhere'"):
        module.maker_of("somewhere")


def test_the_stored_record_is_what_its_values_say():
    kept = json.loads(module.PLACE.read_text())
    assert [one.word for one in module.verdicts(kept)] == ["undecided", "agrees", "agrees"]
    assert kept[module.SCHEDULES] == module.schedules(json.loads(module.CONFIGS.read_text()))
    assert all(row["page"].startswith("https://") and row["stated"] for row in kept[module.READ])
