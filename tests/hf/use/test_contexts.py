"""Several contexts: as if each had been read alone, without padding and without a cache."""

import itertools

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from ropewalk import InvalidValue, extended, nbce_generate, nbce_stream, parse

from hf.models import tiny
from hf.traces import logits
from hf.use.questions import CONTEXTS, QUESTION, WORDS

GIVEN = {"max_new_tokens": 12}


@pytest.fixture(scope="module")
def tokenizer():
    own = Tokenizer(WordLevel(WORDS, unk_token="<unk>"))
    own.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=own, unk_token="<unk>", bos_token="<s>")


@pytest.fixture(scope="module")
def model():
    made = tiny("llama", num_hidden_layers=2)
    made.generation_config.eos_token_id = None
    return made


def by_hand(model, tokenizer, decoding, contexts=CONTEXTS, count=12):
    """Each row alone, from its first token on, at every step."""
    rule, last, made = parse(decoding).decoding, None, []
    texts = ["", *contexts]
    for _ in range(count):
        alone = []
        for text in texts:
            ids = tokenizer(text)["input_ids"] + tokenizer(QUESTION)["input_ids"] + [token for token, _ in made]
            alone.append(logits(model, torch.tensor([ids]), use_cache=False)[0, -1].float().log_softmax(-1))
        combined = rule.combine(torch.stack(alone), last)
        last = combined.chosen
        made.append((int(combined.logp.argmax()), None if last is None else last - 1))
    return made


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("decoding", ["nbce", "nbce:beta=0.5,eta=0", "parallel_windows"])
@pytest.mark.parametrize("rows_at_once", [None, 2, 1])
def test_is_what_reading_each_context_alone_gives(model, tokenizer, decoding, rows_at_once):
    given = {**GIVEN, "decoding": decoding, "rows_at_once": rows_at_once}
    answer = nbce_generate(model, tokenizer, CONTEXTS, QUESTION, **given)
    assert [tuple(token) for token in answer.tokens] == by_hand(model, tokenizer, decoding)
    assert answer.text == tokenizer.decode([token.id for token in answer.tokens])


@pytest.mark.parametrize("text", ["rerope:window=8+log_n", "dynamic_yarn"])
def test_under_an_extension(model, tokenizer, text):
    with extended(model, text):
        answer = nbce_generate(model, tokenizer, CONTEXTS, QUESTION, **GIVEN)
        assert [tuple(token) for token in answer.tokens] == by_hand(model, tokenizer, "nbce")


def test_tokens_come_one_by_one_and_can_be_drawn_again(model, tokenizer):
    given = {**GIVEN, "temperature": 1.0, "top_k": 10}
    drawn = [list(nbce_stream(model, tokenizer, CONTEXTS, QUESTION, seed=seed, **given)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    first = next(nbce_stream(model, tokenizer, CONTEXTS, QUESTION, **GIVEN))
    assert tuple(first) == by_hand(model, tokenizer, "nbce", count=1)[0]


def test_an_answer_ends_where_the_model_ends_it(model, tokenizer):
    full = nbce_generate(model, tokenizer, CONTEXTS, QUESTION, **GIVEN)
    model.generation_config.eos_token_id = [full.tokens[3].id]
    try:
        ended = nbce_generate(model, tokenizer, CONTEXTS, QUESTION, **GIVEN)
    finally:
        model.generation_config.eos_token_id = None
    first = [token.id for token in full.tokens].index(full.tokens[3].id)
    assert ended.tokens == full.tokens[:first]


def test_refusals(model, tokenizer):
    for contexts, question, match in (([], QUESTION, "contexts"), (CONTEXTS, "", "question")):
        with pytest.raises(InvalidValue, match=match):
            nbce_generate(model, tokenizer, contexts, question)
    with pytest.raises(InvalidValue, match="decoding"):
        nbce_generate(model, tokenizer, CONTEXTS, QUESTION, decoding="yarn:factor=4")
    with pytest.raises(InvalidValue, match="extend the model by reach"):
        nbce_generate(model, tokenizer, CONTEXTS, QUESTION, decoding="nbce+rerope:window=8")
    with pytest.raises(InvalidValue, match="rows_at_once"):
        nbce_generate(model, tokenizer, CONTEXTS, QUESTION, rows_at_once=0)


def test_progress_is_told_over_all_groups(model, tokenizer, monkeypatch):
    """Rows of 1 + question and of context + question tokens, padded to the longest of their group of two."""
    monkeypatch.setattr("ropewalk.hf.use.contexts.CHUNK_LEN", 4)
    told = []
    given = {**GIVEN, "rows_at_once": 2, "progress": lambda done, total: told.append((done, total))}
    nbce_generate(model, tokenizer, CONTEXTS, QUESTION, **given)
    asked = len(tokenizer(QUESTION, add_special_tokens=False)["input_ids"])
    rows = [len(tokenizer(text)["input_ids"]) + asked for text in ("", *CONTEXTS)]
    total = sum(len(rows[n : n + 2]) * max(rows[n : n + 2]) for n in range(0, len(rows), 2))
    assert told[-1] == (total, total)
    assert all(0 < later - earlier <= 2 * 4 for (earlier, _), (later, _) in itertools.pairwise(told))


def test_one_text_is_no_list_of_contexts(tokenizer):
    with pytest.raises(InvalidValue, match="a list of texts, at least one, got 'w5 w6'"):
        nbce_generate(tiny("llama"), tokenizer, "w5 w6", QUESTION)
