"""TRL's SFTTrainer on an extended model: `rw.extend` is the one line that its script needs."""

import itertools
import warnings

import pytest
import torch
from transformers import AutoModelForCausalLM

from ropewalk import extend, load, models, save
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.checkpoint.fetch import fetch_tokenizer

from hf.traces import logits
from nightly import first_of_each

trl = pytest.importorskip("trl", reason="trl is for Python 3.11 and later")
peft, datasets = pytest.importorskip("peft"), pytest.importorskip("datasets")

# Mode tables, ours without and with numbers that learn.
LINES = ["yarn:factor=4", "rerope:window=64+log_n", "biases.kerple_log"]
IDS = torch.randint(3, 2000, (1, 600), generator=torch.Generator().manual_seed(5))
pytestmark = pytest.mark.filterwarnings("ignore")  # trl's own, of transformers' deprecated names


@pytest.fixture
def model():
    return AutoModelForCausalLM.from_pretrained(models.DEFAULT, dtype=torch.float32)


def trainer(model, out, texts, adapter=None, **settings):
    """The trainer of a script, with as few settings as it takes on a CPU."""
    arguments = {"max_steps": 2, "use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no"}
    config = trl.SFTConfig(str(out), per_device_train_batch_size=1, **{**arguments, **settings})
    rows = datasets.Dataset.from_dict({"text": texts})
    tokenizer = fetch_tokenizer(models.DEFAULT)
    with warnings.catch_warnings(action="ignore"):
        return trl.SFTTrainer(model, config, train_dataset=rows, processing_class=tokenizer, peft_config=adapter)


def grass(*lines):
    return [f"Text {count}.\n" + "The grass is green. Here we go.\n" * count for count in lines]


@pytest.mark.nightly
@pytest.mark.parametrize("text", LINES)
@pytest.mark.parametrize("settings", [{}, {"packing": True, "max_length": 700}], ids=["alone", "packed"])
def test_what_was_trained_under_an_extension_is_saved_with_it(model, tmp_path, text, settings):
    """In mixed precision, as trl trains by itself; saved are float32 weights, compared without autocast."""
    handle = extend(model, text)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    sft = trainer(model, tmp_path, grass(50, 60, 70), **settings)
    assert sft.train().training_loss > 0
    assert handle_of(sft.model) is handle
    assert not [name for name, value in model.named_parameters() if torch.equal(value, before[name])]
    save(model, tmp_path / "saved")
    assert handle_of(sft.model) is handle
    again = load(tmp_path / "saved")
    plain = type(model).forward(model, IDS).logits
    torch.testing.assert_close(again(IDS).logits, plain, rtol=0, atol=2e-3 * float(plain.abs().max()))


@pytest.mark.parametrize("text", LINES)
def test_packed_texts_do_not_see_each_other(model, tmp_path, text):
    """The loss of a packed row is that of its texts, read one by one."""
    extend(model, text)
    sft = trainer(model, tmp_path, grass(3, 10, 20), packing=True, max_length=700)
    row = next(iter(sft.get_train_dataloader()))
    ids, positions = row["input_ids"][0], row["position_ids"][0]
    starts = [*(positions == 0).nonzero().flatten().tolist(), len(ids)]
    assert len(starts) == 4
    with torch.no_grad():
        got = model(**row, use_cache=False).logits[0]
        for start, stop in itertools.pairwise(starts):
            alone = model(input_ids=ids[None, start:stop], use_cache=False).logits[0]
            torch.testing.assert_close(got[start:stop], alone, rtol=1e-3, atol=1e-3)


@pytest.mark.nightly
@pytest.mark.parametrize("text", first_of_each(LINES))
def test_an_adapter_is_trained_and_merged_under_the_extension(model, tmp_path, text):
    handle = extend(model, text)
    sft = trainer(model, tmp_path, grass(60), peft.LoraConfig(r=4, target_modules="all-linear"))
    base = logits(model, IDS)
    sft.train()
    assert handle_of(sft.model) is handle
    merged = sft.model.merge_and_unload()
    assert handle_of(merged) is handle
    save(merged, tmp_path / "saved")
    assert not torch.equal(logits(load(tmp_path / "saved"), IDS), base)


@pytest.mark.nightly
def test_checkpoints_of_the_trainer_carry_the_extension(model, tmp_path):
    extend(model, "rerope:window=64+log_n")
    trainer(model, tmp_path, grass(20, 30), save_strategy="steps", save_steps=1).train()
    assert str(handle_of(load(tmp_path / "checkpoint-2")).extension) == str(handle_of(model).extension)
    longer = trainer(model, tmp_path, grass(20, 30), save_strategy="steps", save_steps=1, max_steps=3)
    longer.train(resume_from_checkpoint=True)
    assert longer.state.global_step == 3
