"""`/v1/chat/completions`, asked by OpenAI's own client over a socket."""

import asyncio

import openai
import pytest

from serve.conftest import client_of, running
from serve.fake_engine import TEMPLATE, FakeEngine

HELLO = {"role": "user", "content": "Hello"}


@pytest.fixture(scope="module")
def server():
    with running(FakeEngine(template=TEMPLATE)) as one:
        yield one


@pytest.fixture
def client(server):
    server.engine.asked.clear()
    return client_of(server)


def said(server, number=-1):
    """What the engine was asked to read, as text."""
    return [server.engine.tokenizer.decode(prompt) for prompt in server.engine.asked[number].prompts]


def test_messages_are_written_by_the_models_template(client, server):
    system = {"role": "system", "content": "Be short."}
    done = client.chat.completions.create(model="default", messages=[system, HELLO], max_tokens=3)
    assert said(server) == ["<system>Be short.</system><user>Hello</user><assistant>"]
    message = done.choices[0].message
    expected = server.engine.tokenizer.decode(server.engine.asked[0].prompts[0][:3])
    assert (message.role, message.content) == ("assistant", expected)
    assert (done.object, done.choices[0].finish_reason) == ("chat.completion", "length")


def test_parts_of_text_are_joined(client, server):
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    client.chat.completions.create(model="default", messages=[{"role": "user", "content": parts}], max_tokens=1)
    assert said(server) == ["<user>Hello</user><assistant>"]


def test_an_answer_may_be_sent_back_as_it_came(client, server):
    done = client.chat.completions.create(model="default", messages=[HELLO], max_tokens=2)
    answer = done.choices[0].message
    client.chat.completions.create(model="default", messages=[HELLO, answer.model_dump(), HELLO], max_tokens=1)
    assert said(server) == [f"<user>Hello</user><assistant>{answer.content}</assistant><user>Hello</user><assistant>"]


def test_without_a_number_an_answer_has_all_that_remains(client, server):
    client.chat.completions.create(model="default@bare", messages=[HELLO])
    assert server.engine.asked[0].sampling.max_tokens == 512 - len(server.engine.asked[0].prompts[0])
    client.chat.completions.create(model="default@streaming:window=252,n_sink=4", messages=[HELLO])
    assert server.engine.asked[1].sampling.max_tokens == 512


def test_without_a_number_an_answer_does_not_ask_for_the_largest_factor(client, server):
    engine = server.engine
    engine.extensions["yarn:factor=4"].by_length = [(512, "to 512"), (2048, "to 2048")]
    client.chat.completions.create(model="default@yarn:factor=4", messages=[HELLO])
    assert engine.asked[0].sampling.max_tokens == 512 // 4


def test_both_names_of_the_length_are_known(client, server):
    for name in ("max_tokens", "max_completion_tokens"):
        client.chat.completions.create(model="default", messages=[HELLO], **{name: 7})
        assert server.engine.asked[-1].sampling.max_tokens == 7


def test_a_stream_begins_with_the_role_and_has_the_same_text(client):
    whole = client.chat.completions.create(model="default", messages=[HELLO], max_tokens=5, n=2)
    texts = ["", ""]
    chunks = list(client.chat.completions.create(model="default", messages=[HELLO], max_tokens=5, n=2, stream=True))
    assert [chunk.choices[0].delta.role for chunk in chunks[:2]] == ["assistant"] * 2
    for chunk in chunks:
        assert chunk.object == "chat.completion.chunk"
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert chunks[-1].choices[0].finish_reason == "length"


def test_the_clients_own_helper_reads_the_stream(client, server):
    server.engine.answer = "Well, hello."
    try:
        with client.chat.completions.stream(model="default", messages=[HELLO]) as stream:
            done = stream.get_final_completion()
    finally:
        server.engine.answer = None
    assert done.choices[0].message.content == "Well, hello."
    assert done.choices[0].finish_reason == "stop"


def test_log_probabilities_come_with_their_bytes(client, server):
    done = client.chat.completions.create(
        model="default", messages=[HELLO], max_tokens=2, logprobs=True, top_logprobs=2
    )
    content = done.choices[0].logprobs.content
    assert "".join(entry.token for entry in content) == done.choices[0].message.content
    assert [bytes(entry.bytes).decode() for entry in content] == [entry.token for entry in content]
    assert [top.logprob for top in content[0].top_logprobs] == [-0.5, -1.5]
    chunks = client.chat.completions.create(model="default", messages=[HELLO], max_tokens=2, logprobs=True, stream=True)
    streamed = [entry for chunk in chunks for c in chunk.choices if c.logprobs for entry in c.logprobs.content]
    assert [entry.token for entry in streamed] == [entry.token for entry in content]
    assert streamed[0].top_logprobs == []


def test_contexts_stand_before_the_question(client, server):
    asked = {"contexts": ["One.", "Two."]}
    client.chat.completions.create(model="default", messages=[HELLO], max_tokens=1, extra_body=asked)
    assert said(server) == [
        "<user>One.\n\nHello</user><assistant>",
        "<user>Two.\n\nHello</user><assistant>",
        "<user>Hello</user><assistant>",
    ]


def test_the_asynchronous_client_streams_many_at_once(server):
    async def one(client, number):
        messages = [{"role": "user", "content": f"number {number}"}]
        stream = await client.chat.completions.create(model="default", messages=messages, max_tokens=9, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def many():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(one(client, number) for number in range(20)))

    texts = asyncio.run(many())
    expected = [
        server.engine.tokenizer.decode(
            server.engine.tokenizer(f"<user>number {number}</user><assistant>")["input_ids"][:9]
        )
        for number in range(20)
    ]
    assert texts == expected


def test_without_a_template_the_way_out_is_named():
    with running() as plain, pytest.raises(openai.BadRequestError, match="/v1/completions") as refused:
        client_of(plain).chat.completions.create(model="default", messages=[HELLO])
    assert refused.value.param == "messages"


def test_a_template_may_refuse():
    template = "{{ raise_exception('roles must alternate') }}"
    refused = pytest.raises(openai.BadRequestError, match="roles must alternate")
    with running(FakeEngine(template=template)) as strict, refused:
        client_of(strict).chat.completions.create(model="default", messages=[HELLO])


# Sessions: only what is new is sent.


def ask(client, text, session, **options):
    """The next turn of a session, which the first one begins."""
    messages = [{"role": "user", "content": text}]
    extra = {"extra_body": {"session": session, "new_session": text == "Hello"}}
    return client.chat.completions.create(model="default", messages=messages, max_tokens=2, **extra, **options)


def test_a_session_reads_only_what_is_new(client, server):
    first = ask(client, "Hello", "new")
    answer = first.choices[0].message.content
    second = ask(client, "Bye", "new")
    assert said(server) == ["</assistant><user>Bye</user><assistant>"]
    assert server.engine.asked[-1].session == "new"
    one, two = (done.usage.session["tokens"] for done in (first, second))
    assert two == one + second.usage.total_tokens == server.engine.sessions["new"].tokens
    conversation = server.engine.sessions["new"].said
    assert conversation.text == f"<user>Hello</user><assistant>{answer}</assistant><user>Bye</user><assistant>"


def test_a_streamed_session_goes_on_as_well(client, server):
    chunks = list(ask(client, "Hello", "streamed", stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage.session["tokens"] == server.engine.sessions["streamed"].tokens
    ask(client, "Bye", "streamed")
    assert said(server) == ["</assistant><user>Bye</user><assistant>"]


def test_a_session_of_texts_is_not_one_of_messages(client):
    extra = {"session": "texts", "new_session": True}
    client.completions.create(model="default", prompt="x", max_tokens=1, extra_body=extra)
    with pytest.raises(openai.ConflictError, match="so messages cannot follow") as refused:
        ask(client, "Bye", "texts")
    assert refused.value.code == "no_chat"


def test_messages_after_texts_are_refused_too(client):
    ask(client, "Hello", "mixed")
    client.completions.create(model="default", prompt="x", max_tokens=1, extra_body={"session": "mixed"})
    with pytest.raises(openai.ConflictError):
        ask(client, "Bye", "mixed")


def test_a_template_that_rewrites_the_past_is_refused():
    template = "{{ messages | length }}{% for m in messages %}<{{ m.content }}>{% endfor %}"
    with running(FakeEngine(template=template)) as odd:
        ask(client_of(odd), "Hello", "odd")
        with pytest.raises(openai.ConflictError, match="differently") as refused:
            ask(client_of(odd), "Bye", "odd")
    assert refused.value.code == "session_differs"


def test_a_template_may_strip_an_answer():
    template = TEMPLATE.replace("m.content", "m.content.strip()")
    with running(FakeEngine(template=template)) as stripping:
        stripping.engine.answer = "  spaces  "
        client = client_of(stripping)
        ask(client, "Hello", "s")
        ask(client, "Bye", "s")
        assert said(stripping) == ["</assistant><user>Bye</user><assistant>"]
