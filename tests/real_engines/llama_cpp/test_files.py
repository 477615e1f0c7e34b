"""The vocabulary of the file in the real llama.cpp: a page of text becomes the same token ids."""

import pytest
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

import ropewalk as rw
from ropewalk.engines.llama_cpp.architectures import TEXT, WORDS

from real_engines import models
from real_engines.process import ask
from real_engines.served import SCRIPTS

PAGES = [(models.ROOT / name).read_text() for name in ("README.md", "README.zh.md")] + [TEXT, "a<|end|>b  \n\n c", ""]
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
DIGITS = pre_tokenizers.Digits(individual_digits=True)


def split(digits):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS % digits), "isolated"), BYTES])


RULES = {
    "smollm": (pre_tokenizers.Sequence([DIGITS, GPT2]), False),
    "gpt-2": (GPT2, False),
    "qwen2": (split(""), False),
    "llama-bpe": (split("{1,3}"), True),
    "dbrx": (split("{1,3}"), False),
}


def trained(rules, whole):
    """A tokenizer of these rules, trained on the pages."""
    made = Tokenizer(BPE(ignore_merges=whole))
    made.pre_tokenizer, made.decoder = rules, decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    sizes = {"vocab_size": 1000, "show_progress": False}
    trainer = trainers.BpeTrainer(special_tokens=["<|end|>"], initial_alphabet=alphabet, **sizes)
    made.train_from_iterator(PAGES, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<|end|>", eos_token="<|end|>")


def exported(model, tokenizer, place):
    with rw.extended(model, "pi:factor=4"):
        return rw.export(model, place, target="llama.cpp", tokenizer=tokenizer)


@pytest.mark.parametrize("name", RULES)
def test_the_same_ids(tmp_path, name):
    tokenizer = trained(*RULES[name])
    said = exported(models.small("llama", vocab_size=1024), tokenizer, tmp_path / "out")
    assert f"under the rules that llama.cpp calls {name}" in str(said)
    ids = ask("llama.cpp", SCRIPTS["llama.cpp"], {"pages": {"command": said.command, "texts": PAGES}}, tmp_path)
    for i, page in enumerate(PAGES):
        assert ids[f"pages/{i}"].tolist() == tokenizer.encode(page)


def test_the_carried_model_end_to_end(tmp_path):
    tokenizer = models.carried_tokenizer()
    said = exported(models.carried(), tokenizer, tmp_path / "out")
    ids = ask("llama.cpp", SCRIPTS["llama.cpp"], {"pages": {"command": said.command, "texts": PAGES}}, tmp_path)
    for i, page in enumerate(PAGES):
        assert ids[f"pages/{i}"].tolist() == tokenizer.encode(page)


def test_without_a_tokenizer_prompts_are_ids(tmp_path):
    model, ids = models.small("qwen3"), models.random_prompt(64)
    said = exported(model, None, tmp_path / "out")
    assert "no tokenizer was passed" in str(said)
    answer = ask("llama.cpp", SCRIPTS["llama.cpp"], {"prompt": {"command": said.command, "ids": ids}}, tmp_path)[
        "prompt"
    ]
    assert answer.shape == (64, models.SIZES["vocab_size"])
