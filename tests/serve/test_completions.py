"""`/v1/completions`, asked by OpenAI's own client over a socket."""

import openai
import pytest

from serve.conftest import client_of, running
from serve.fake_engine import FakeEngine


@pytest.fixture(scope="module")
def server():
    with running(FakeEngine()) as one:
        yield one


@pytest.fixture
def client(server):
    server.engine.asked.clear()
    return client_of(server)


def test_a_text_is_continued(client, server):
    done = client.completions.create(model="default", prompt="hello world", max_tokens=4)
    ids = server.engine.tokenizer("hello world")["input_ids"]
    assert server.engine.asked[0].prompts == (tuple(ids),)
    assert done.choices[0].text == server.engine.tokenizer.decode(ids[:4])
    assert done.choices[0].finish_reason == "length"
    assert (done.object, done.model) == ("text_completion", "default@rerope+log_n")
    assert (done.usage.prompt_tokens, done.usage.completion_tokens, done.usage.total_tokens) == (
        len(ids),
        4,
        len(ids) + 4,
    )


@pytest.mark.parametrize(("prompt", "expected"), [(["one", "two"], 2), ([5, 6, 7], 1), ([[5, 6], [7]], 2)])
def test_prompts_come_in_four_forms(client, server, prompt, expected):
    done = client.completions.create(model="default", prompt=prompt, max_tokens=2)
    assert [choice.index for choice in done.choices] == list(range(expected))
    asked = [question.prompts[0] for question in server.engine.asked]
    ids = [[5, 6, 7]] if prompt == [5, 6, 7] else prompt
    assert asked == [
        tuple(server.engine.tokenizer(one)["input_ids"]) if isinstance(one, str) else tuple(one) for one in ids
    ]


def test_without_a_number_an_answer_has_sixteen_tokens_or_what_remains(client, server):
    client.completions.create(model="default", prompt="hello")
    client.completions.create(model="default@bare", prompt=[5] * 505)
    assert [question.sampling.max_tokens for question in server.engine.asked] == [16, 7]


def test_several_answers_count_their_seeds_on_and_their_prompt_once(client, server):
    done = client.completions.create(model="default", prompt=["a b", "c"], n=3, seed=7, max_tokens=1, temperature=0.5)
    assert [choice.index for choice in done.choices] == list(range(6))
    assert [question.sampling.seed for question in server.engine.asked] == [7, 8, 9, 7, 8, 9]
    read = [len(server.engine.tokenizer(text)["input_ids"]) for text in ("a b", "c")]
    assert done.usage.prompt_tokens == sum(read)
    assert done.usage.completion_tokens == 6


def test_sampling_is_what_was_asked(client, server):
    client.completions.create(
        model="default",
        prompt="x",
        temperature=0,
        top_p=0.5,
        stop=["\n", "end"],
        max_tokens=3,
        extra_body={"top_k": 5, "ignore_eos": True},
    )
    client.completions.create(model="default", prompt="x", stop=".", max_tokens=3)
    first, second = (question.sampling for question in server.engine.asked)
    assert (first.temperature, first.top_p, first.top_k, first.stop, first.ignore_eos) == (
        0,
        0.5,
        5,
        ("\n", "end"),
        True,
    )
    assert (second.stop, second.temperature, second.seed, second.logprobs) == ((".",), 1.0, None, None)


def test_the_prompt_is_repeated_with_its_log_probabilities(client, server):
    done = client.completions.create(model="default", prompt="hello world", echo=True, logprobs=2, max_tokens=2)
    logprobs = done.choices[0].logprobs
    assert done.choices[0].text.startswith("hello world")
    assert "".join(logprobs.tokens) == done.choices[0].text
    assert logprobs.token_logprobs[0] is None
    assert logprobs.top_logprobs[0] is None
    assert logprobs.token_logprobs[-1] == -0.5
    assert len(logprobs.top_logprobs[-1]) == 2
    for token, offset in zip(logprobs.tokens, logprobs.text_offset, strict=True):
        assert done.choices[0].text[offset : offset + len(token)] == token
    assert server.engine.asked[0].prompt_logprobs


def test_a_prompt_is_scored_without_an_answer(client):
    done = client.completions.create(model="default", prompt=[72, 270], echo=True, logprobs=0, max_tokens=0)
    assert done.choices[0].logprobs.token_logprobs == [None, -1.0]
    assert done.usage.completion_tokens == 0


def test_without_log_probabilities_the_echo_is_text(client, server):
    done = client.completions.create(model="default", prompt=[72, 270], echo=True, max_tokens=1)
    assert done.choices[0].text.startswith(server.engine.tokenizer.decode([72, 270]))
    assert done.choices[0].logprobs is None
    assert not server.engine.asked[0].prompt_logprobs


@pytest.mark.parametrize("logprobs", [None, 1])
def test_a_stream_has_the_same_text_as_the_whole(client, logprobs):
    asked = {
        "model": "default",
        "prompt": ["hello world", "x"],
        "n": 2,
        "max_tokens": 5,
        "echo": True,
        "logprobs": logprobs,
    }
    whole = client.completions.create(**asked)
    texts, reasons, tokens = [""] * 4, [None] * 4, [[] for _ in range(4)]
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason
            tokens[choice.index] += choice.logprobs.tokens if choice.logprobs else []
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == ["length"] * 4
    assert tokens == [choice.logprobs.tokens if logprobs else [] for choice in whole.choices]


def test_the_usage_of_a_stream_comes_last(client):
    chunks = list(
        client.completions.create(
            model="default", prompt="x", max_tokens=2, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 2
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


def test_a_model_that_is_not_served_is_named_with_the_nearest(client):
    with pytest.raises(openai.NotFoundError, match=r"did you mean 'default@yarn:factor=4'") as refused:
        client.completions.create(model="default@yarn:factor=8", prompt="x")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")


def test_what_an_extension_does_not_carry_is_refused_with_the_number(client):
    with pytest.raises(openai.BadRequestError, match="at most 512"):
        client.completions.create(model="default@bare", prompt=[5] * 600)
    with pytest.raises(openai.BadRequestError, match="at most 512"):
        client.completions.create(model="default@bare", prompt=[5] * 600, stream=True)


def test_token_ids_must_be_in_the_vocabulary(client):
    for wrong in (-1, 2048, 10**30):
        with pytest.raises(openai.BadRequestError, match="from 0 to 2,047"):
            client.completions.create(model="default", prompt=[wrong])


def test_an_empty_text_is_refused(client):
    with pytest.raises(openai.BadRequestError, match="at least one token"):
        client.completions.create(model="default", prompt="")


def test_if_one_of_several_is_refused_none_is_answered(server, client):
    before = len(server.engine.cancelled)
    server.engine.room = 2
    try:
        with pytest.raises(openai.RateLimitError) as refused:
            client.completions.create(model="default", prompt="x", n=3)
    finally:
        server.engine.room = 100
        server.engine.open.clear()  # nobody reads an answer that was refused with the others
    assert refused.value.response.headers["retry-after"] == "1"
    assert refused.value.code == "queue_full"
    assert len(server.engine.cancelled) - before == 2


def test_more_answers_than_ever_fit_are_refused_for_good(server, client):
    with pytest.raises(openai.BadRequestError, match="n must be at most 100 answers in total") as refused:
        client.completions.create(model="default", prompt=["x"] * 10, n=11)
    assert refused.value.param == "n"


def test_contexts_are_read_separately_and_the_question_alone_last(client, server):
    contexts = {"contexts": ["One. ", "Two. "], "decoding": "mean_pooling:beta=0.5"}
    client.completions.create(model="default", prompt="Who?", max_tokens=2, extra_body=contexts)
    (question,) = server.engine.asked
    read = [tuple(server.engine.tokenizer(text)["input_ids"]) for text in ("One. ", "Two. ", "Who?")]
    assert question.prompts == (read[0] + read[2], read[1] + read[2], read[2])
    assert str(question.decoding) == "mean_pooling:beta=0.5"


def test_contexts_are_combined_by_nbce_unless_told_otherwise(client, server):
    client.completions.create(model="default", prompt="Who?", max_tokens=2, extra_body={"contexts": ["One. "]})
    assert str(server.engine.asked[0].decoding) == "nbce"


@pytest.mark.parametrize(
    ("decoding", "message"),
    [
        ("yarn:factor=4", "nbce, mean_pooling or max_pooling"),
        ("positional_contrast:beta=1,new_base=40", "nbce, mean_pooling or max_pooling"),
        ("ape", "nbce, mean_pooling or max_pooling"),
        ("nbce+log_n", "nbce, mean_pooling or max_pooling"),
        ("nbce:betta=1", "did you mean 'beta'"),
        ("/etc/hostname.json", "a line such as"),
        ("n" * 300, "a line such as"),
    ],
)
def test_a_decoding_must_be_one(client, decoding, message):
    asked = {"contexts": ["One. "], "decoding": decoding}
    with pytest.raises(openai.BadRequestError, match=message):
        client.completions.create(model="default", prompt="Who?", extra_body=asked)


def test_with_contexts_the_question_must_not_be_empty(client):
    with pytest.raises(openai.BadRequestError, match="it is the question"):
        client.completions.create(model="default", prompt="", extra_body={"contexts": ["One. "]})


def test_a_failure_of_the_engine_says_nothing_of_it(client, server):
    server.engine.failure = RuntimeError("secret text")
    try:
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError) as failed:
                client.completions.create(model="default", prompt="x", stream=stream)
            assert "secret" not in str(failed.value)
    finally:
        server.engine.failure = None
