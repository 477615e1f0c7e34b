"""A small model in a folder, with a tokenizer of words."""

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from hf.models import tiny


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    own = Tokenizer(WordLevel({"<unk>": 0} | {f"w{n}": n for n in range(1, 101)}, unk_token="<unk>"))
    own.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=own, unk_token="<unk>").save_pretrained(place)
    model = tiny("llama", num_hidden_layers=2)
    model.generation_config.eos_token_id = None
    model.save_pretrained(place)
    return place
