"""A table of learned positions ends; who has none may read any length."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ropewalk import DoesNotFit, score, stream
from ropewalk.hf.probe.max_length import learned_positions
from ropewalk.hf.use.long_text import score_tokens

from hf.models import tiny

SIZES = {
    "gpt2": {"n_positions": 20, "n_embd": 32, "n_layer": 1, "n_head": 2},
    "opt": {  # whose first two rows are no positions
        "max_position_embeddings": 20,
        "hidden_size": 32,
        "word_embed_proj_dim": 32,
        "ffn_dim": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    },
    "bloom": {"hidden_size": 32, "n_layer": 1, "n_head": 2},  # ALiBi
}
IDS = torch.randint(3, 97, (1, 40), generator=torch.Generator().manual_seed(5))


def made(name):
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(name, vocab_size=101, **SIZES[name], **special)).eval()


@pytest.mark.parametrize(("name", "rows"), [("gpt2", 20), ("opt", 20), ("bloom", None)])
def test_positions_are_counted_where_they_are_looked_up(name, rows):
    found = learned_positions(made(name))
    assert (found and found.rows) == rows


@pytest.mark.parametrize("name", ["gpt2", "opt"])
def test_a_text_beyond_the_table_is_refused_before_it_is_read(name):
    model = made(name)
    assert score(model, IDS[:, :21]).shape == (1, 20)  # the last token is told, not read
    model.register_forward_pre_hook(lambda _, __, given: lengths.append(given["input_ids"].shape[1]), with_kwargs=True)
    lengths: list[int] = []
    for refused in (score, score_tokens):
        with pytest.raises(
            DoesNotFit, match="length must be at most the 20 positions that the model has learned, got 21"
        ):
            refused(model, IDS[:, :22])
    assert max(lengths) <= 2  # what the table is found out by
    assert len(list(stream(model, IDS[:, :15], max_new_tokens=6))) == 6
    with pytest.raises(DoesNotFit, match="got 21"):
        stream(model, IDS[:, :15], max_new_tokens=7)


def test_who_turns_reads_on():
    model = tiny("llama", num_hidden_layers=1)
    assert model.config.max_position_embeddings < 39
    assert score(model, IDS).shape == (1, 39)
    assert score(made("bloom"), IDS).isfinite().all()
