"""Training a checkpoint on, grouping its heads, and teaching it with its own questions."""

import json
from dataclasses import replace

import pytest
import torch
from full_disk import room
from transformers import AutoModelForCausalLM

import ropewalk as rw
from ropewalk.errors import DoesNotFit, InvalidValue, Unreadable
from ropewalk.models import DEFAULT
from ropewalk.texts.corpora import Document
from ropewalk.train.data import puzzles as questions
from ropewalk.train.data.packs import IGNORED
from ropewalk.train.data.puzzles import QuestionAnswer, asker, pairs_of
from ropewalk.train.recipes import long_instruct as instructing
from ropewalk.train.recipes.carry_on import CarryOnSettings, carry_on
from ropewalk.train.recipes.drope import DroPESettings, drope
from ropewalk.train.recipes.listing import recipe
from ropewalk.train.recipes.long_instruct import AnsweredRows, LongInstructSettings, long_instruct
from ropewalk.train.recipes.recipe import run
from ropewalk.train.recipes.uptrain_gqa import UptrainGQASettings, uptrain_gqa
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.train import TrainingPlan

from train.recipes.scripted import Scripted
from train.texts import folder_of, text, tokenizer

# peft asks transformers for a name that is to go.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

PLAN = TrainingPlan(steps=6, rows=2, progress=False, log_every=1, learning_rate=1e-2)
IDS = torch.randint(5, 290, (1, 60), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def model(tmp_path):
    place = tmp_path / "short"
    shape = ModelShape(vocabulary=300, width=32, inner=48, layers=2, heads=4, trained_len=32)
    new_small_model(shape, end=tokenizer().eos_token_id).save_pretrained(place)
    tokenizer().save_pretrained(place)
    return place


@pytest.fixture
def corpus(tmp_path):
    return folder_of(tmp_path / "texts", count=12)


def carried_on(out, model, plan=PLAN, **settings):
    return carry_on(out, CarryOnSettings(plan=plan, model=str(model), **settings))


def logits(model):
    with torch.no_grad():
        return model.eval()(input_ids=IDS, use_cache=False).logits


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize(("extension", "lora"), [("pi", 0), ("ntk", 0), ("yarn", 4), ("abf:new_base=500000", 0)])
def test_a_schedule_is_trained_on_and_kept_in_a_standard_config(tmp_path, model, corpus, extension, lora):
    done = carried_on(tmp_path / "long", model, extension=extension, length=64, corpus=corpus, lora=lora)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "long" / "model")
    torch.testing.assert_close(logits(plain), logits(done), rtol=1e-3, atol=1e-3)
    assert plain.config.max_position_embeddings == 64
    before, after = rw.load(model).state_dict(), plain.state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    projections = {name for name in after if "proj" in name}
    assert changed == projections if lora else changed > projections


@pytest.mark.nightly
def test_a_checkpoint_is_trained_on_at_its_own_length(tmp_path, model, corpus):
    done = carried_on(tmp_path / "more", model, extension="rope", length=32, corpus=corpus)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "more" / "model")
    torch.testing.assert_close(logits(plain), logits(done), rtol=1e-4, atol=1e-4)
    assert plain.config.max_position_embeddings == 32
    assert plain.config.rope_parameters == {"rope_type": "default", "rope_theta": 10_000.0}
    assert plain.config.use_cache  # which Trainer turns off
    assert not torch.equal(plain.lm_head.weight, rw.load(model).lm_head.weight)


@pytest.mark.nightly
@pytest.mark.parametrize("lora", [0, 4])
def test_going_on_gives_what_one_run_gives(tmp_path, model, corpus, lora):
    settings = {"extension": "yarn", "length": 64, "corpus": corpus, "lora": lora}
    plan = {"rows": 2, "progress": False, "decay": 0.1, "warmup": 0.1}
    whole = carried_on(tmp_path / "whole", model, TrainingPlan(steps=6, **plan), **settings)
    stopped = tmp_path / "stopped"
    carried_on(stopped, model, TrainingPlan(steps=6, save_every=3, **plan), **settings)
    for path in sorted((stopped / "checkpoint-6").iterdir()):
        path.unlink()  # as if it had been killed after the third step
    again = carried_on(stopped, model, TrainingPlan(steps=6, save_every=3, **plan), **settings)
    torch.testing.assert_close(logits(again), logits(whole), rtol=1e-4, atol=1e-4)


@pytest.mark.nightly
def test_the_rotation_is_dropped_and_the_rest_trained_on(tmp_path, model, corpus):
    plan = replace(PLAN, learning_rate=1e-3, steps=2)
    done = drope(tmp_path / "out", DroPESettings(plan=plan, model=str(model), corpus=corpus))
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "model")
    torch.testing.assert_close(logits(plain), logits(done), rtol=1e-4, atol=1e-4)
    assert plain.config.max_position_embeddings == 32  # trained at its own length
    cos, sin = plain.model.rotary_emb(torch.zeros(1), torch.tensor([[0, 1, 31, 10_000]]))
    assert bool((cos == 1).all())
    assert float(sin.abs().max()) < 1e-9
    before, after = rw.load(model).state_dict(), plain.state_dict()
    shift = {name: float((value - before[name]).abs().max()) for name, value in after.items()}
    assert 0 < max(shift.values()) < 0.01  # two small steps from the weights that it had


@pytest.mark.nightly
def test_dropping_resumes_where_it_was_stopped(tmp_path, model, corpus):
    texts = {"model": str(model), "corpus": corpus, "rows": "2", "progress": "false", "learning_rate": "1e-3"}
    whole = run(recipe("drope"), tmp_path / "whole", {**texts, "steps": "6"})
    stopped = tmp_path / "stopped"
    run(recipe("drope"), stopped, {**texts, "steps": "6", "save_every": "3"})
    for path in sorted((stopped / "checkpoint-6").iterdir()):
        path.unlink()  # as if it had been killed after the third step
    again = run(recipe("drope"), stopped, {**texts, "steps": "6", "save_every": "3"})
    one, other = (AutoModelForCausalLM.from_pretrained(place) for place in (whole, again))
    torch.testing.assert_close(logits(one), logits(other), rtol=1e-4, atol=1e-4)


@pytest.mark.nightly
def test_weights_are_trained_in_float32(tmp_path, model, corpus):
    """A step of 1e-5 is lost in bfloat16, where weights of 0.02 are 1e-4 apart."""
    AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).save_pretrained(tmp_path / "half")
    tokenizer().save_pretrained(tmp_path / "half")
    plan = replace(PLAN, steps=1, learning_rate=1e-5, weight_decay=0.0)
    done = carried_on(tmp_path / "out", tmp_path / "half", plan, extension="rope", length=32, corpus=corpus)
    before = rw.load(tmp_path / "half").state_dict()["model.layers.0.mlp.up_proj.weight"].float()
    moved = (done.state_dict()["model.layers.0.mlp.up_proj.weight"] - before).abs()
    assert float((moved > 0).float().mean()) > 0.9
    assert float(moved.mean()) < 2e-5


def summed_loss(model, ids, positions):
    """The loss of all tokens of some rows, but of the first of each text."""
    logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits[:, :-1]
    labels = ids.masked_fill(positions == 0, IGNORED)[:, 1:]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: value.grad.clone() for name, value in model.named_parameters()}


@pytest.mark.parametrize("extension", ["dynamic_yarn", "dynamic_ntk", "frequencies.longrope:long=[1,2,4,8]"])
def test_a_batch_learns_from_short_texts_as_before_and_from_long_ones_under_the_extension(model, extension):
    """Its gradients are the base model's for the short texts, and the extension's for the long one, added up."""
    own = rw.load(model).float()
    for name, value in own.named_parameters():
        if "proj" in name:
            value.data *= 10  # so that attention matters
    ids = torch.randint(5, 290, (2, 64), generator=torch.Generator().manual_seed(2))
    short, long = torch.arange(32).repeat(2), torch.arange(64)
    apart = sum(summed_loss(own, ids[:1, part], long[None, :32]) for part in (slice(0, 32), slice(32, 64)))
    base, loss = gradients(own, apart), apart.item()
    bare_long = gradients(own, summed_loss(own, ids[1:], long[None]))
    with rw.extended(own, extension, target_len=64):
        assert summed_loss(own, ids[:1], short[None]).item() == pytest.approx(loss, rel=1e-5)
        stretched = gradients(own, summed_loss(own, ids[1:], long[None]))
        both = gradients(own, summed_loss(own, ids, torch.stack([short, long])))
    for name, got in both.items():
        size = float(got.abs().max())
        torch.testing.assert_close(got, base[name] + stretched[name], rtol=1e-3, atol=1e-4 * size)
    projection = "model.layers.0.self_attn.q_proj.weight"
    for part in (base, stretched, {projection: bare_long[projection] - stretched[projection]}):
        assert float(part[projection].norm() / both[projection].norm()) > 0.01


@pytest.mark.nightly
def test_training_on_both_lengths(tmp_path, model, corpus):
    texts = {"model": str(model), "corpus": corpus, "extension": "dynamic_yarn", "length": "64", "short_rows": "0.5"}
    texts |= {"rows": "2", "progress": "false", "learning_rate": "1e-3", "steps": "4", "save_every": "2"}
    whole, stopped = run(recipe("carry_on"), tmp_path / "whole", texts), tmp_path / "stopped"
    run(recipe("carry_on"), stopped, texts)
    for path in sorted((stopped / "checkpoint-4").iterdir()):
        path.unlink()  # as if it had been killed after the second step
    again = run(recipe("carry_on"), stopped, texts)
    torch.testing.assert_close(logits(rw.load(again)), logits(rw.load(whole)), rtol=1e-4, atol=1e-4)
    only = run(
        recipe("carry_on"), tmp_path / "long", {name: text for name, text in texts.items() if "short" not in name}
    )
    assert not torch.allclose(logits(rw.load(only)), logits(rw.load(whole)), atol=1e-4)


@pytest.mark.parametrize(
    "extension", ["yarn", "ntk", "rerope:window=16", "log_n:clipped=false", "window:window=31", "head_scale"]
)
def test_an_extension_that_changes_short_texts_is_not_mixed(tmp_path, model, corpus, extension):
    with pytest.raises(DoesNotFit, match="changes texts of 32 tokens too"):
        carried_on(tmp_path / "out", model, extension=extension, length=64, corpus=corpus, short_rows=0.5)


def test_both_lengths_need_two(tmp_path, model, corpus):
    with pytest.raises(DoesNotFit, match=r"length must be above the trained length \(32\)"):
        carried_on(tmp_path / "out", model, extension="dynamic_yarn", length=32, corpus=corpus, short_rows=0.5)


@pytest.mark.nightly
def test_heads_are_grouped_and_trained_on(tmp_path, model, corpus):
    plan = replace(PLAN, learning_rate=1e-4)
    uptrain_gqa(tmp_path / "grouped", UptrainGQASettings(plan=plan, model=str(model), kv_heads=2, corpus=corpus))
    grouped = AutoModelForCausalLM.from_pretrained(tmp_path / "grouped" / "model")
    assert grouped.config.num_key_value_heads == 2
    pooled = rw.convert(rw.load(model), "gqa:kv_heads=2").state_dict()
    name = "model.layers.0.self_attn.k_proj.weight"
    assert grouped.state_dict()[name].shape == pooled[name].shape
    assert 0 < float((grouped.state_dict()[name] - pooled[name]).norm() / pooled[name].norm()) < 0.1


@pytest.mark.nightly
def test_what_is_trained_on_longer_rows_says_so(tmp_path, model, corpus):
    settings = UptrainGQASettings(plan=PLAN, model=str(model), kv_heads=2, length=64, corpus=corpus)
    assert uptrain_gqa(tmp_path / "grouped", settings).config.max_position_embeddings == 64
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "grouped" / "model")
    assert plain.config.max_position_embeddings == 64


def test_the_model_to_begin_from_is_not_written_over(tmp_path, model, corpus):
    mine = model.rename(tmp_path / "model")
    with pytest.raises(InvalidValue, match="out must be another folder than the model's"):
        carried_on(tmp_path, mine, extension="yarn", length=64, corpus=corpus)
    assert rw.load(mine).config.max_position_embeddings == 32


@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [("foo", InvalidValue, "one of python, stdlib"), ("folder:/nowhere", Unreadable, "a path that exists")],
)
def test_an_unknown_corpus(tmp_path, model, source, kind, words):
    with pytest.raises(kind, match=words):
        carried_on(tmp_path / "x", model, extension="pi", length=64, corpus=source)


@pytest.mark.parametrize("name", ["carry_on", "drope", "uptrain_gqa", "long_instruct"])
def test_a_tokenizer_without_an_end_token_is_refused_at_once(name, tmp_path, model, corpus):
    """Before the corpus is read: documents and answers end with it."""
    endless = tokenizer.__wrapped__()
    endless.eos_token = None
    endless.save_pretrained(model)
    needed = {"extension": "yarn", "length": "64", "kv_heads": "2", "steps": "1", "corpus": corpus}
    rows = {row.name for row in recipe(name).rows()}
    texts = {"model": str(model), **{setting: text for setting, text in needed.items() if setting in rows}}
    with pytest.raises(DoesNotFit, match=r"tokenizer must be one with an end token .*, got None; set its eos_token"):
        run(recipe(name), tmp_path / "out", texts)
    assert not (tmp_path / "out").exists()


def test_a_missing_model(tmp_path, corpus):
    with pytest.raises(Unreadable, match="model must be an existing folder"):
        carried_on(tmp_path / "x", tmp_path / "none", extension="pi", length=64, corpus=corpus)


def made(tmp_path, ask, count=3):
    documents = [Document(str(n), text(n)) for n in range(count)]
    return list(pairs_of(documents, tokenizer(), ask, passage=40, file=tmp_path / "questions.jsonl"))


def test_pairs_are_kept_where_the_model_vouches_for_them_and_needs_the_passage(tmp_path):
    found = made(tmp_path, Scripted())
    assert [pair.document for pair in found] == ["0", "1", "2"]
    assert {(pair.question, pair.answer) for pair in found} == {("What turns?", "rope")}
    for n, wrong in enumerate([{"question": "Nothing."}, {"answer": ""}, {"verdict": "no"}, {"without": "Rope"}]):
        (tmp_path / str(n)).mkdir()
        assert made(tmp_path / str(n), Scripted(**wrong)) == []


def test_documents_are_asked_about_once(tmp_path):
    first = made(tmp_path, Scripted())
    with (tmp_path / "questions.jsonl").open("a") as lines:
        lines.write('{"document": "3", "pai')  # killed in the middle of a line
    ask = Scripted()
    every = made(tmp_path, ask, count=4)
    assert every[:3] == first
    assert ask.asked == 4
    assert made(tmp_path, ask, count=4) == every
    assert ask.asked == 4


LINES = ["{}", "[]", "null", "garbage", "[" * 100_000, '{"document": 5, "pairs": []}', '{"document": "0", "pairs": 5}']
PAIRS = [["1", 0, "What?", "this"], ["0", -1, "What?", "this"], ["0", "x", "What?", "this"], ["0", 0], ["0", 0, 5, "x"]]
PAIRED = [json.dumps({"document": "0", "pairs": [pair]}) for pair in PAIRS]


@pytest.mark.parametrize("line", [*LINES, *PAIRED, '{"document": "0", "document": "0", "pairs": []}'], ids=range(13))
def test_questions_that_were_changed_are_refused_by_name(tmp_path, line):
    (tmp_path / "questions.jsonl").write_text(f"{line}\n")
    with pytest.raises(Unreadable, match=r"questions\.jsonl must be questions that a run has made"):
        made(tmp_path, Scripted())


def test_a_full_disk_costs_the_line_that_is_written_and_no_other(tmp_path):
    first = made(tmp_path, Scripted(), count=2)
    place = tmp_path / "questions.jsonl"
    with room(place.stat().st_size + 10), pytest.raises(DoesNotFit, match="disk must be large enough"):
        made(tmp_path, Scripted(), count=4)
    ask = Scripted()
    assert made(tmp_path, ask, count=4)[:2] == first
    assert ask.asked == 8


def test_a_model_answers_with_its_likeliest_line(model):
    own = rw.load(model)
    said = asker(own, tokenizer())("the rope")
    ids = tokenizer().encode("the rope")
    with torch.no_grad():
        for _ in range(questions.ANSWER):
            ids.append(int(own(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == tokenizer().eos_token_id:
                break
    whole = tokenizer().decode(ids[len(tokenizer().encode("the rope")) :], skip_special_tokens=True)
    assert said == whole.strip().partition("\n")[0].strip()
    assert "\n" not in said


def test_rows_hold_the_passage_the_question_and_the_answer(tmp_path):
    texts = {str(n): Document(str(n), text(n)) for n in range(3)}
    pairs = [QuestionAnswer(str(n), 30 * n, f"Which is {n}?", f"number {n}") for n in range(3)]
    rows = AnsweredRows(pairs, texts, tokenizer(), length=160, count=40, passage=40, answers_only=True)
    depths = set()
    for n in range(40):
        row = rows[n]
        assert torch.equal(row["input_ids"], rows[n]["input_ids"])
        assert len(row["input_ids"]) == 160
        begins = [*torch.nonzero(row["position_ids"] == 0).flatten().tolist(), 160]
        first = row["input_ids"][: begins[1]]
        own = next(pair for pair in pairs if f"Which is {pair.document}?" in tokenizer().decode(first))
        tokens = tokenizer().encode(texts[own.document].text)
        needed = torch.tensor(tokens[own.begin : own.begin + 40])
        places = [k for k in range(len(first) - 39) if torch.equal(first[k : k + 40], needed)]
        assert places
        depths.add(places[0])
        asked = row["labels"] != IGNORED
        assert tokenizer().decode(row["labels"][: len(first)][asked[: len(first)]]).strip() == f"{own.answer}<|end|>"
    assert len(depths) > 5


def test_the_whole_recipe(tmp_path, model, corpus, monkeypatch):
    monkeypatch.setattr(instructing, "asker", lambda model, tokenizer: Scripted())
    settings = {"model": str(model), "extension": "yarn", "length": 128, "corpus": corpus, "passage": 32}
    done = long_instruct(tmp_path / "taught", LongInstructSettings(plan=PLAN, **settings))
    lines = (tmp_path / "taught" / "questions.jsonl").read_text().splitlines()
    assert all(json.loads(line)["pairs"][0][2:] == ["What turns?", "rope"] for line in lines)
    torch.testing.assert_close(logits(rw.load(tmp_path / "taught" / "model")), logits(done), rtol=1e-3, atol=1e-3)


def test_a_model_that_cannot_ask(tmp_path, model, corpus):
    settings = {"model": str(model), "length": 64, "corpus": corpus, "passage": 16, "characters": 2000}
    with pytest.raises(DoesNotFit, match="the model verified none of its questions and answers"):
        long_instruct(tmp_path / "x", LongInstructSettings(plan=PLAN, **settings))
    texts = {"0": Document("0", text(0))}
    with pytest.raises(DoesNotFit, match="a passage with its question"):
        AnsweredRows([QuestionAnswer("0", 0, "Why?", "so")], texts, tokenizer(), length=20, count=1, passage=40)


@pytest.mark.parametrize("name", ["carry_on", "drope", "uptrain_gqa", "long_instruct"])
def test_the_carried_model_has_a_name_for_every_recipe(name, tmp_path, monkeypatch):
    asked = []

    def plausible(model, **_):
        asked.append(model)
        raise InvalidValue("model", "another", model)

    monkeypatch.setattr("ropewalk.train.recipes.building_blocks.load", plausible)
    needed = {"extension": "yarn", "length": "1024", "kv_heads": "2", "steps": "1"}
    rows = {row.name for row in recipe(name).rows()}
    texts = {"model": "default", **{setting: text for setting, text in needed.items() if setting in rows}}
    with pytest.raises(InvalidValue, match="model must be another"):
        run(recipe(name), tmp_path / "out", texts)
    assert asked == [str(DEFAULT)]
    assert not (tmp_path / "out").exists()


def test_a_small_model_ends_where_the_tokenizers_made_here_end():
    """Without being told: the end is their first token, and texts of a corpus are divided by it."""
    config = new_small_model(ModelShape(vocabulary=300, width=16, inner=16, layers=1, heads=1)).config
    assert {config.bos_token_id, config.eos_token_id} == {tokenizer().eos_token_id} == {0}
