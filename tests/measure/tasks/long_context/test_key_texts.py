"""Key tokens beside their text: the authors' intervals, a loop over the definition, files that are not believed."""

import json
from copy import deepcopy
from itertools import pairwise

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast

import ropewalk as rw
from ropewalk.errors import DoesNotFit, Unreadable
from ropewalk.measure.tasks.long_context import key_texts
from ropewalk.measure.tasks.long_context.key_texts import (
    KeyRule,
    KeyText,
    carry_over,
    key_text,
    merge,
    read_key_texts,
    require_reader,
    write_key_texts,
)

from golden_tables import golden
from measure.subjects import TRAINED, model, subject
from train.texts import tokenizer

REFERENCE = rw.parse("rerope:window=16")
KEY = KeyText("the rope is long", ((4, 8), (12, 16)), 3.0, 2.5)


def loss(context, token):
    """Of one token after its context, under the reference."""
    with torch.no_grad():
        logits = model()(input_ids=context[None], use_cache=False).logits[0, -1]
    return float(cross_entropy(logits[None], token[None]))


def test_key_tokens_by_a_loop_over_the_definition(tmp_path):
    """Windows of 32 tokens and a target advance by 16; the last one ends with the text. In the first all are near."""
    who = subject(tmp_path, longest=70)
    ids = who.passages(1)[0]
    offsets = tokenizer()(tokenizer().decode(ids), return_offsets_mapping=True, add_special_tokens=False)
    assert offsets["input_ids"] == ids.tolist()
    begins = dict.fromkeys(range(1, 33), 0)
    for stop in (48, 64, 69):
        begins |= dict.fromkeys(range(max(begins) + 1, stop + 1), stop - 32)
    with rw.extended(model(), REFERENCE):
        near = [loss(ids[begins[place] : place], ids[place]) for place in range(1, 70)]
        far = [loss(ids[:place], ids[place]) for place in range(1, 70)]
    chosen = [n + 1 for n in range(69) if near[n] - far[n] > 0.1 and far[n] < 6.0]
    assert 3 < len(chosen) < 36
    got = key_text(who, 0, KeyRule(REFERENCE, gain=0.1, most=6.0))
    assert got.text == tokenizer().decode(ids)
    assert got.keys == merge([offsets["offset_mapping"][place] for place in chosen])
    assert (got.near, got.far) == pytest.approx((sum(near) / 69, sum(far) / 69), abs=1e-5)
    assert carry_over(got, tokenizer()).keys.nonzero().flatten().tolist() == [place - 1 for place in chosen]


def test_a_judged_model_does_not_choose(tmp_path):
    """Whatever the model is under now, the reference chooses; and the model is under it afterwards."""
    who, rule = subject(tmp_path, longest=70), KeyRule(REFERENCE, gain=0.1, most=6.0)
    plain = key_text(who, 1, rule)
    with rw.extended(who.model, "pi:factor=8"):
        before = who.model(input_ids=who.passages(1)[0][None]).logits
        assert key_text(who, 1, rule) == plain
        assert torch.equal(who.model(input_ids=who.passages(1)[0][None]).logits, before)


@pytest.mark.parametrize("case", golden("longppl")["cases"])
def test_intervals_and_their_tokens_are_the_authors(case):
    reference, judged = ([tuple(pair) for pair in case[name]] for name in ("reference_offsets", "judged_offsets"))
    intervals = merge([reference[n] for n in case["chosen"]])
    assert [list(pair) for pair in intervals] == case["intervals"]
    for offsets, keys in ((reference, case["same_keys"]), (judged, case["judged_keys"])):
        got = [n - 1 for n, offset in enumerate(offsets) if key_texts._is_inside(offset, intervals)]
        assert got == keys


def test_intervals_that_touch_are_one():
    assert merge([(0, 2), (2, 3), (5, 5), (6, 8), (7, 9)]) == ((0, 3), (6, 9))
    assert merge([]) == ()


def words_only():
    """A tokenizer whose tokens are words, without the space before them."""
    made = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "rope": 2, "is": 3, "long": 4}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


def test_another_tokenizer_is_judged_on_the_same_characters():
    """By hand: rope and long are the second and the fourth word, the first and the third loss."""
    got = carry_over(KEY, words_only())
    assert got.ids.tolist() == [1, 2, 3, 4]
    assert got.keys.tolist() == [True, False, True]
    assert got.share == 1.0
    half = carry_over(KEY._replace(keys=((4, 8), (12, 15))), words_only())  # of the last word a letter is missing
    assert half.keys.tolist() == [True, False, False]
    assert half.share == pytest.approx(4 / 7)


def test_a_tokenizer_that_joins_most_key_characters_with_others_is_refused():
    with pytest.raises(DoesNotFit, match="only 0% of the key characters are in whole tokens of this tokenizer, 50%"):
        carry_over(KEY._replace(keys=((5, 8), (12, 15))), words_only())
    with pytest.raises(DoesNotFit, match="only 40% of the key characters"):
        carry_over(KEY._replace(keys=((0, 2), (4, 8), (9, 10), (12, 15))), words_only())


def test_a_tokenizer_without_offsets_is_refused():
    slow = deepcopy(tokenizer())
    slow.__class__ = type("Slow", (type(slow),), {"is_fast": False})
    with pytest.raises(DoesNotFit, match="tokenizer must be a fast one, which knows the characters"):
        carry_over(KEY, slow)


def test_a_file_gives_back_what_was_written(tmp_path):
    place = tmp_path / "new" / "keys.json"
    texts = [KEY, KeyText('an "é" \u2028 and 𝄞', (), 1.0, 1.0)]
    write_key_texts(place, texts, {"reference": {"model": "m"}})
    assert list(read_key_texts(str(place))) == texts
    assert json.loads(place.read_text())["reference"] == {"model": "m"}
    assert (
        len({text.mark for text in (*texts, KEY._replace(keys=KEY.keys[:1]), KEY._replace(text="The rope is long"))})
        == 4
    )


def altered(**values):
    """A file with one text, of which fields are replaced; None removes one."""
    row = {"hash": key_texts.hash_of(KEY.text), **KEY._asdict()} | values
    return {"version": 1, "texts": [{name: value for name, value in row.items() if value is not None}]}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (altered(text="the rope is wrong"), "the text is not the one whose key tokens were chosen"),
        (altered(hash=None), "the text is not the one"),
        (altered(text=None), "an object with hash, text, keys, near and far"),
        (altered(keys=None), "an object with"),
        (altered(near="low"), "an object with"),
        (altered(far=None), "an object with"),
        (altered(keys=[[4, 8, 9]]), "pairs of whole numbers"),
        (altered(keys=[[4], [8]]), "pairs of whole numbers"),
        (altered(keys=[[4.0, 8]]), "pairs of whole numbers"),
        (altered(keys=[[True, 8]]), "pairs of whole numbers"),
        (altered(keys=["48"]), "pairs of whole numbers"),
        (altered(keys=[[8, 4]]), "in order, apart, and within the 16 characters"),
        (altered(keys=[[4, 4]]), "in order, apart"),
        (altered(keys=[[4, 8], [8, 9]]), "in order, apart"),
        (altered(keys=[[12, 16], [4, 8]]), "in order, apart"),
        (altered(keys=[[-1, 8]]), "in order, apart"),
        (altered(keys=[[4, 17]]), "within the 16 characters"),
        ({"version": 1, "texts": []}, "with texts"),
        ({"version": 1, "texts": "all"}, "with texts"),
        ({"version": 1, "texts": [7]}, "an object with"),
        ({"version": 2, **{"texts": altered()["texts"]}}, "of version 1"),
        ({"texts": altered()["texts"]}, "of version 1"),
        ([1], "a JSON object"),
    ],
)
def test_what_was_changed_by_hand_is_refused(tmp_path, record, words):
    place = tmp_path / "keys.json"
    place.write_text(json.dumps(altered()))
    assert read_key_texts(str(place)) == (KEY,)
    place.write_text(json.dumps(record) + " " * 9)
    key_texts._read.cache_clear()  # the clock of the file system may be coarser than this test
    with pytest.raises(Unreadable, match=words):
        read_key_texts(str(place))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"version": NaN}', b'{"version": 1, "version": 1}'])
def test_what_is_no_json_is_refused(tmp_path, content):
    place = tmp_path / "keys.json"
    place.write_bytes(content)
    with pytest.raises(Unreadable, match="a file of key tokens"):
        read_key_texts(str(place))


def test_a_file_that_is_not_there():
    with pytest.raises(Unreadable, match="keys must be a file that exists, got 'nowhere'"):
        read_key_texts("nowhere")
    with pytest.raises(Unreadable, match="keys must be a file that exists"):
        read_key_texts("a\0b")


def test_a_reference_must_read_the_whole_text():
    """The mean rise of the two texts is a quarter of a nat; above it is refused."""
    reader = [KEY._replace(near=2.0, far=2.5), KEY._replace(near=2.0, far=2.0)]
    require_reader(reader, "rerope")
    with pytest.raises(DoesNotFit, match=r"the reference rope does not read these texts: its loss is 0.30 nats higher"):
        require_reader([*reader[:1], KEY._replace(near=2.0, far=2.1)], "rope")
    with pytest.raises(DoesNotFit, match="its loss is nan nats higher"):
        require_reader([KEY._replace(far=float("nan"))], "rope")
    with pytest.raises(DoesNotFit, match="the reference rope finds no key token in 2 texts; take longer texts"):
        require_reader([KEY._replace(keys=())] * 2, "rope")


def test_near_windows_advance_by_half(tmp_path):
    assert [key_texts.near_stride(window) for window in (1, 2, 33)] == [1, 1, 16]
    assert TRAINED == 32
    assert all(b > a for a, b in pairwise(KEY.keys[0]))
