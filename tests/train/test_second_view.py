"""Self-distillation between two views: the loss by its formula, its gradient, and who else can train with it."""

import math
from dataclasses import dataclass, replace

import datasets
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Trainer, TrainingArguments

import ropewalk as rw
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.methods.positions import PoSE
from ropewalk.methods.positions.positions import Positions
from ropewalk.train.data.packs import PackedRows, collate_items
from ropewalk.train.recipes.carry_on import CarryOnSettings, carry_on
from ropewalk.train.second_view import kl, second_view
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.train import TrainingPlan, train

from hf.models import tiny
from train.texts import folder_of, tokenizer, tokens
from train.watching import StopAt, losses

pytestmark = pytest.mark.nightly

SMALL = ModelShape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=32)
PLAN = TrainingPlan(steps=5, rows=2, save_every=50, log_every=1, progress=False, learning_rate=1e-2)
IDS = torch.randint(5, 290, (2, 12), generator=torch.Generator().manual_seed(1))
LABELS = IDS.masked_fill(torch.arange(12) == 4, -100)
WEIGHT = 0.3


@dataclass(frozen=True, kw_only=True)
class Jump(Positions):
    """A jump of 20 before the fifth token of a text, not drawn."""

    name = "jump"

    def number(self, length, generator=None):
        return torch.tensor([n if n < 4 else n + 20 for n in range(length)])


def sharp(made=None):
    model = made or new_small_model(SMALL)
    for name, value in model.named_parameters():
        if "proj" in name or "query_key_value" in name:
            value.data *= 6
    return model.train()


def by_hand(model, positions, jumped, mask):
    """Cross-entropy and KL(student || teacher), token by token; the mask says who sees whom in both views."""
    first, second = (
        model(input_ids=IDS, position_ids=one, attention_mask=mask, use_cache=False).logits
        for one in (positions, jumped)
    )
    terms = []
    for row in range(2):
        for n in range(11):
            label = int(LABELS[row, n + 1])
            if label == -100:
                continue
            p, q = second[row, n].softmax(-1), first[row, n].detach().softmax(-1)
            terms.append(-first[row, n].softmax(-1)[label].log() + WEIGHT * (p * (p / q).log()).sum())
    return sum(terms) / len(terms)


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["llama", "gpt_neox"])
def test_the_loss_and_its_gradient_are_the_formula(name, packed):
    model = sharp(tiny(name, vocab_size=300)).double()
    texts = [7, 5] if packed else [12]
    positions = torch.cat([torch.arange(count) for count in texts])[None].repeat(2, 1)
    jumped = torch.cat([Jump().number(count) for count in texts])[None].repeat(2, 1)
    of = torch.cat([torch.full((count,), nth) for nth, count in enumerate(texts)])
    mask = (of[:, None] == of[None]).tril()[None, None].expand(2, 1, 12, 12)
    expected = by_hand(model, positions, jumped, mask)
    wanted = gradients(model, expected)
    inputs = {"input_ids": IDS, "position_ids": positions, "labels": LABELS, "use_cache": False}
    plain = model(**inputs).loss
    with second_view(model, Jump(), weight=WEIGHT):
        got = model(**inputs).loss
    torch.testing.assert_close(got.double(), expected, rtol=1e-6, atol=0)  # transformers' loss is float32
    assert (got - plain).item() > 1e-3
    for key, value in gradients(model, got).items():
        torch.testing.assert_close(value, wanted[key], rtol=1e-4, atol=1e-6)


def test_a_divergence_of_two_words():
    """Of (3/4, 1/4) from (1/2, 1/2): 3/4 ln 3/2 + 1/4 ln 1/2."""
    student, teacher = torch.tensor([[math.log(3.0), 0.0]]), torch.tensor([[5.0, 5.0]])
    assert float(kl(student, teacher)) == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), rel=1e-6)


def test_items_of_a_whole_step_divide_it():
    """Trainer states how many labels all batches of a step have."""
    model = sharp()
    with second_view(model, Jump(), weight=WEIGHT):
        mean = model(input_ids=IDS, labels=LABELS).loss.item()
        part = model(input_ids=IDS, labels=LABELS, num_items_in_batch=torch.tensor(80)).loss.item()
    assert part == pytest.approx(mean * 20 / 80, rel=1e-5)


@pytest.mark.parametrize("extension", ["rerope:window=8", "yarn:factor=4", "kerple"])
def test_under_an_extension_packed_texts_do_not_see_each_other(extension):
    """Their second views too: a row of two texts has the loss of both, weighed by their labels."""
    model = sharp()
    rw.extend(model, extension)
    positions = torch.cat([torch.arange(7), torch.arange(5)])[None]
    labels = IDS[:1].masked_fill(positions == 0, -100)
    with second_view(model, Jump(), weight=WEIGHT):
        packed = model(input_ids=IDS[:1], position_ids=positions, labels=labels, use_cache=False).loss.item()
        pieces = (IDS[:1, :7], IDS[:1, 7:])
        first, second = (model(input_ids=ids, labels=ids, use_cache=False).loss.item() for ids in pieces)
    assert packed == pytest.approx((6 * first + 4 * second) / 10, rel=1e-4)


@pytest.mark.parametrize("extension", ["", "rerope:window=8"])
def test_padding_is_not_read(extension):
    model = sharp()
    if extension:
        rw.extend(model, extension)
    ids, mask = torch.cat([torch.full((1, 3), 7), IDS[:1]], 1), torch.tensor([[0] * 3 + [1] * 12])
    labels = torch.cat([torch.full((1, 4), -100), IDS[:1, 1:]], 1)
    with second_view(model, Jump(), weight=WEIGHT):
        padded = model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False).loss
        alone = model(input_ids=IDS[:1], labels=IDS[:1], use_cache=False).loss
    assert padded.item() == pytest.approx(alone.item(), rel=1e-4)


def test_only_training_reads_twice():
    model = sharp()
    with second_view(model, Jump(), weight=WEIGHT), torch.no_grad():
        twice = model(input_ids=IDS, labels=LABELS).loss
        assert model.eval()(input_ids=IDS, labels=LABELS).loss < twice
    assert "forward" not in vars(model)
    assert model.train()(input_ids=IDS, labels=LABELS).loss < twice


def rows(path):
    return PackedRows(tokens(path, count=20), tokenizer(), length=32, count=400)


def run(path, name, weight, *, step=None, wrap=lambda model: model, plan=PLAN):
    model = wrap(sharp())
    with second_view(model, PoSE(target_len=64), weight=weight):
        return train(model, rows(path), plan, path / name, callbacks=[StopAt(step)])


def test_weight_0_is_training_as_it_was(tmp_path):
    plain = train(sharp(), rows(tmp_path), PLAN, tmp_path / "plain")
    nothing = run(tmp_path, "nothing", 0.0)
    assert losses(plain) == losses(nothing) != losses(run(tmp_path, "some", WEIGHT))
    after = nothing.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in plain.model.state_dict().items())


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft asks for it
def test_stopped_it_goes_on_with_the_same_numbers_and_adapters_learn_by_it(tmp_path):
    def adapted(model):
        torch.manual_seed(1)
        return get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))

    for wrap, name in ((lambda model: model, "all"), (adapted, "lora")):
        whole = losses(run(tmp_path, f"{name}-whole", WEIGHT, wrap=wrap))
        run(tmp_path, name, WEIGHT, step=2, wrap=wrap)
        assert losses(run(tmp_path, name, WEIGHT, wrap=wrap)) == whole
        assert whole != losses(run(tmp_path, f"{name}-plain", 0.0, wrap=wrap))


def test_in_bfloat16_and_started_again_when_all_is_done(tmp_path):
    """Trainer wraps the forward again there."""
    plan = replace(PLAN, bf16=True)
    done = run(tmp_path, "run", WEIGHT, plan=plan)
    assert losses(done) != losses(run(tmp_path, "plain", 0.0, plan=plan))
    again = run(tmp_path, "run", WEIGHT, plan=plan)
    assert again.state.global_step == PLAN.steps
    assert "forward" not in vars(again.model)


def test_the_recipe(tmp_path):
    place = tmp_path / "short"
    sharp(new_small_model(SMALL, end=tokenizer().eos_token_id)).save_pretrained(place)
    tokenizer().save_pretrained(place)

    def trained(name, **settings):
        chosen = {"model": str(place), "corpus": folder_of(tmp_path / "texts", count=12), "length": 64, **settings}
        carry_on(tmp_path / name, CarryOnSettings(plan=PLAN, extension="yarn", **chosen))
        assert rw.load(tmp_path / name / "model").config.max_position_embeddings == 64
        return (tmp_path / name / "losses.json").read_text()

    plain, near, far = trained("plain"), trained("near", second_view=0.5), trained("far", second_view=0.5, jumps_to=640)
    assert len({plain, near, far}) == 3
    with pytest.raises(InvalidValue, match=r"jumps_to must be at least the length of a row \(64\), got 63"):
        trained("short", second_view=0.5, jumps_to=63)


def settings_of(kind, out, **more):
    return kind(str(out), max_steps=2, use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no", **more)


def test_transformers_trainer(tmp_path):
    """A script's own: one line around `train`."""

    def trained(weight):
        model = sharp()
        data = datasets.Dataset.from_list([rows(tmp_path)[n] for n in range(16)]).with_format("torch")
        settings = settings_of(TrainingArguments, tmp_path / "run", logging_steps=1, gradient_accumulation_steps=2)
        trainer = Trainer(model, settings, train_dataset=data, data_collator=collate_items)
        with second_view(model, PoSE(target_len=64), weight=weight):
            trainer.train()
        return losses(trainer)

    assert trained(0.0) != trained(5.0)
    assert trained(5.0)[0] > trained(0.0)[0]


@pytest.mark.filterwarnings("ignore")  # trl's own, of transformers' deprecated names
def test_trl_is_refused_as_it_takes_no_loss_from_the_model(tmp_path):
    trl = pytest.importorskip("trl", reason="trl is for Python 3.11 and later")
    texts = datasets.Dataset.from_dict({"text": ["of rope long short walk turns key " * 3] * 8})

    def trainer(model):
        settings = settings_of(trl.SFTConfig, tmp_path / "run", bf16=False)
        return trl.SFTTrainer(model, settings, train_dataset=texts, processing_class=tokenizer())

    before, inside = sharp(), sharp()
    sft = trainer(before)
    with pytest.raises(DoesNotFit, match="so not by TRL"), second_view(before, PoSE(target_len=256), weight=1):
        sft.train()
    with pytest.raises(Conflict, match="no second view was read"), second_view(inside, Jump(), weight=1):
        trainer(inside).train()


def test_what_has_no_second_view_is_refused():
    model = sharp()
    with pytest.raises(InvalidValue, match="weight must be at least 0"), second_view(model, Jump(), weight=-1):
        pass
    rw.extend(model, "randomized:limit=128")
    with pytest.raises(Conflict, match="numbers the first view already"), second_view(model, Jump(), weight=1):
        pass
    with pytest.raises(DoesNotFit, match="no module with rotary"), second_view(tiny("gpt2"), Jump(), weight=1):
        pass
    made = sharp()
    with second_view(made, Jump(), weight=1), pytest.raises(DoesNotFit, match="needs named inputs and the logits of"):
        made(IDS, labels=LABELS)
