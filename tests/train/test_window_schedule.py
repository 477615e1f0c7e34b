"""The window schedule: what a token sees in each step, worked by hand, and resuming in the middle."""

from dataclasses import replace
from types import SimpleNamespace

import datasets
import pytest
import torch
from transformers import Trainer, TrainingArguments

import ropewalk as rw
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.train.data.packs import PackedRows, collate_items
from ropewalk.train.recipes.pretrain import PretrainSettings, pretrain
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.train import TrainingPlan, train
from ropewalk.train.window_schedule import WindowSchedule, cut

from hf.models import tiny
from train.texts import folder_of, tokenizer, tokens
from train.watching import StopAt, losses

pytestmark = pytest.mark.nightly

SMALL = ModelShape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=16)
PLAN = TrainingPlan(steps=8, rows=2, accumulate=2, save_every=50, log_every=1, progress=False)
IDS = torch.randint(3, 97, (1, 16), generator=torch.Generator().manual_seed(0))
# 4 + floor(2.5 t), up to the 16 tokens of a row, for t = 0 to 7.
FIRST, RATE, WINDOWS = 4, 2.5, [4, 6, 9, 11, 14, 16, 16, 16]


def packs(path, length=16, count=400):
    return PackedRows(tokens(path, count=20), tokenizer(), length=length, count=count)


def schedule(path, plan=PLAN, **more):
    return WindowSchedule(packs(path), plan, **{"first": FIRST, "rate": RATE, **more})


def authors_window(step, length=8192, first=32, steps_a_token=8):
    """SkyLadder's linear schedule, with one more token every eighth step."""
    return min(first + step // steps_a_token, length)


def seen_by_hand(positions, window):
    """A token sees itself and those before it, unless a multiple of the window or the start of a text lies between."""
    begins = {n for n, place in enumerate(positions) if place == 0} | set(range(0, len(positions), window))
    places = range(len(positions))
    return [[m <= n and not any(m < begin <= n for begin in begins) for m in places] for n in places]


def test_the_window_grows_to_the_row():
    rows = [{"input_ids": torch.zeros(16)}]
    assert [WindowSchedule(rows, PLAN, first=FIRST, rate=RATE).window(t) for t in range(8)] == WINDOWS
    long = WindowSchedule([{"input_ids": torch.zeros(8192)}], replace(PLAN, steps=70_000))
    for step in (0, 7, 8, 9, 1000, 65_279, 65_280, 69_999):
        assert long.window(step) == authors_window(step)


def test_positions_begin_again_with_every_window():
    """Two texts, of 5 and of 6 tokens, under windows of 3 and of 4."""
    positions = torch.tensor([0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5])
    assert cut(positions, 3).tolist() == [0, 1, 2, 0, 1, 0, 0, 1, 2, 0, 1]
    assert cut(positions, 4).tolist() == [0, 1, 2, 3, 0, 0, 1, 2, 0, 1, 2]
    assert cut(positions[None].repeat(2, 1), 3).tolist() == 2 * [cut(positions, 3).tolist()]


@pytest.mark.parametrize("window", [1, 3, 8, 16])
@pytest.mark.parametrize("name", ["llama", "gpt_neox"])
def test_attention_is_that_of_the_authors_mask(name, window):
    """They rotate by the place in the row, and hide what lies in another piece."""
    model = tiny(name).double().eval()
    positions, places = torch.cat([torch.arange(7), torch.arange(9)]), torch.arange(16)[None]
    mask = torch.tensor(seen_by_hand(positions.tolist(), window))[None, None]
    with torch.no_grad():
        expected = model(input_ids=IDS, position_ids=places, attention_mask=mask, use_cache=False).logits
        got = model(input_ids=IDS, position_ids=cut(positions, window)[None], use_cache=False).logits
        uncut = model(input_ids=IDS, position_ids=places, use_cache=False).logits
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)  # transformers rotates in float32
    assert (got - uncut).abs().max() > 1e-3


@pytest.mark.parametrize("extension", ["rerope:window=4+log_n", "kerple", "yarn:factor=4"])
def test_a_piece_is_read_as_if_it_were_alone(extension):
    model = tiny("llama").double().eval()
    rw.extend(model, extension)
    with torch.no_grad():
        got = model(input_ids=IDS, position_ids=cut(torch.arange(16), 6)[None], use_cache=False).logits
        alone = [model(input_ids=piece, use_cache=False).logits for piece in IDS.split(6, 1)]
    torch.testing.assert_close(got, torch.cat(alone, 1), rtol=0, atol=1e-5)


def test_rows_change_in_nothing_else_and_the_last_ones_in_nothing(tmp_path):
    rows, plain = schedule(tmp_path), packs(tmp_path)
    assert len(rows) == len(plain)
    for index in range(8 * 4):
        row, uncut, window = rows[index], plain[index], WINDOWS[index // 4]
        assert torch.equal(row["input_ids"], uncut["input_ids"])
        assert torch.equal(row["labels"], uncut["labels"])
        assert int(row["position_ids"].max()) < window
        if window == 16:
            assert torch.equal(row["position_ids"], uncut["position_ids"])


def test_more_processes_share_a_step(tmp_path):
    rows = schedule(tmp_path, processes=3)
    assert [int(rows[n]["position_ids"].max()) < 4 for n in (0, 11)] == [True, True]
    assert any(int(rows[n]["position_ids"].max()) >= 4 for n in range(12, 24))


class Watch(StopAt):
    """The farthest position of each step's batches."""

    def __init__(self, step=None):
        super().__init__(step)
        self.seen, self.now = [], 0

    def watch(self, model):
        model.register_forward_pre_hook(self.look, with_kwargs=True)
        return model

    def look(self, module, args, inputs):
        self.now = max(self.now, int(inputs["position_ids"].max()) + 1)

    def on_step_end(self, args, state, control, **more):
        self.seen.append(self.now)
        self.now = 0
        super().on_step_end(args, state, control, **more)


def run(path, name, watch, rows=None, plan=PLAN):
    model = watch.watch(new_small_model(SMALL))
    return train(model, rows or schedule(path), plan, path / name, callbacks=[watch])


@pytest.mark.parametrize("step", [1, 4, 6])
def test_stopped_in_the_middle_it_goes_on_with_the_same_windows(tmp_path, step):
    whole, rest = Watch(), Watch()
    expected = losses(run(tmp_path, "whole", whole))
    assert whole.seen == WINDOWS
    run(tmp_path, "cut", Watch(step))
    assert losses(run(tmp_path, "cut", rest)) == expected
    assert rest.seen == WINDOWS[step:]


def test_a_run_goes_on_with_its_own_windows_and_may_be_prolonged(tmp_path):
    run(tmp_path, "run", Watch(2))
    with pytest.raises(Conflict, match="the run began with other values of windows"):
        run(tmp_path, "run", Watch(), schedule(tmp_path, rate=3.0))
    longer, watch = replace(PLAN, steps=10), Watch()
    run(tmp_path, "run", watch, schedule(tmp_path, longer), longer)
    assert watch.seen == [*WINDOWS[2:], 16, 16]


def test_a_plan_of_other_steps_is_refused(tmp_path):
    with pytest.raises(Conflict, match=r"window schedule: 2 rows, 2 batches a step, got \(4, 1\)"):
        run(tmp_path, "run", Watch(), plan=replace(PLAN, rows=4, accumulate=1))


def test_windows_that_are_none_or_never_whole(tmp_path):
    for first in (0, 17):
        with pytest.raises(InvalidValue, match=rf"from 1 to the length of a row \(16\), got {first}"):
            schedule(tmp_path, first=first)
    with pytest.raises(DoesNotFit, match=r"the window is 7 of 16 tokens in the last of 8 steps; .* at least 1\.715"):
        schedule(tmp_path, rate=0.5)
    assert schedule(tmp_path, rate=1.715).window(7) == 16  # as the remedy says
    assert schedule(tmp_path, first=16).window(0) == 16


IN_ORDER = {"train_sampling_strategy": "sequential", "remove_unused_columns": False, "max_steps": 8}
IN_ORDER |= {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
IN_ORDER |= {"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no"}


def test_transformers_trainer_reads_it(tmp_path):
    """Rows in their order, and all their columns."""
    watch, rows = Watch(), schedule(tmp_path)
    model, settings = watch.watch(new_small_model(SMALL)), TrainingArguments(str(tmp_path / "run"), **IN_ORDER)
    callbacks = [*rows.callbacks, watch]
    Trainer(model, settings, train_dataset=rows, data_collator=collate_items, callbacks=callbacks).train()
    assert watch.seen == WINDOWS


@pytest.mark.filterwarnings("ignore")  # trl's own, of transformers' deprecated names
def test_trl_reads_it(tmp_path):
    """As rows that are made before, since it takes data sets of `datasets` alone."""
    trl = pytest.importorskip("trl", reason="trl is for Python 3.11 and later")
    watch, rows = Watch(), schedule(tmp_path)
    model, skip = watch.watch(new_small_model(SMALL)), {"skip_prepare_dataset": True}
    settings = trl.SFTConfig(str(tmp_path / "run"), dataset_kwargs=skip, bf16=False, **IN_ORDER)
    parts = {"data_collator": collate_items, "callbacks": [*rows.callbacks, watch], "processing_class": tokenizer()}
    made = datasets.Dataset.from_list([rows[n] for n in range(8 * 4)]).with_format("torch")
    trl.SFTTrainer(model, settings, train_dataset=made, **parts).train()
    assert watch.seen == WINDOWS


def test_the_recipe_trains_under_it(tmp_path):
    def trained(name, **windows):
        corpus = folder_of(tmp_path / "texts", count=12)
        plan = TrainingPlan(steps=4, rows=2, progress=False, log_every=1)
        pretrain(tmp_path / name, PretrainSettings(plan=plan, shape=SMALL, corpus=corpus, **windows))
        return (tmp_path / name / "losses.json").read_text()

    assert trained("plain") == trained("whole", first_window=16)
    assert trained("plain") != trained("grown", first_window=4, window_rate=4.0)
    with pytest.raises(DoesNotFit, match="a window_rate of at least 4 tokens a step"):
        trained("never", first_window=4)


def test_the_guard_is_kept_beside_others(tmp_path):
    inner = packs(tmp_path)
    inner.callbacks, inner.record = (SimpleNamespace(name="theirs"),), {"theirs": 1}
    rows = WindowSchedule(inner, PLAN, first=FIRST, rate=RATE)
    assert rows.callbacks[0].name == "theirs"
    assert rows.record == {"theirs": 1, "windows": [FIRST, RATE]}
