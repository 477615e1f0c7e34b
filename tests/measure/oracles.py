"""Readers that know the answer from the prompt alone, and what puts one in a model's place."""

import re
from collections import Counter

import torch

from ropewalk.hf.use.long_text import TokenScores
from ropewalk.measure.tasks import answers

FACT = re.compile(r"One of the special magic \S+ for (\S+) is: (\S+)\.\n")


def needles(text):
    asked = re.search(r"What (?:is|are all) the special magic \w+ for (.+?) mentioned in", text)[1]
    keys = re.split(r", and |, ", asked)
    return " and ".join(value for key in keys for name, value in FACT.findall(text) if name == key)


def tracking(text):
    text = text[text.rindex("Memorize and track") :]
    value = re.search(r"assigned the value (\d+)", text)[1]
    has = {value}
    for name, origin in re.findall(r"VAR (\w+) = (?:VAR )?(\w+)\n", text):
        if origin in has:
            has.add(name)
    return " ".join(has - {value})


def common_words(text):
    text = text[text.rindex("Below is a numbered list") :]
    count = int(re.search(r"What are the (\d+) most", text)[1])
    listed = re.findall(r"\d+\. (\S+)", text.partition("Question:")[0])
    return " ".join(word for word, _ in Counter(listed).most_common(count))


def frequent_words(text):
    said = re.search(r"coded words\. (.+)\nQuestion", text)[1].split()
    return " ".join(word for word, _ in Counter(word for word in said if word != "....").most_common(3))


def colours(text):
    name = re.search(r"colour of (\w+)\? Answer", text)[1]
    return re.search(rf"colour of {name} is (\w+)", text)[1]


def advice(text):
    return re.search(re.escape(text[text.rindex("?") + 2 :]) + r" (.+)\.\n", text)[1]


def of(kind):
    """Who solves a kind of RULER's."""
    known = {"vt": tracking, "cwe": common_words, "fwe": frequent_words, "qa_1": colours, "qa_2": colours}
    return known.get(kind, needles)


def put(monkeypatch, who, solve):
    """The reader writes what the subject's model is asked for."""

    def told(model, ids, *, max_new_tokens):
        text = who.tokenizer.decode(ids[0].tolist())
        reply = who.tokenizer(" " + solve(text), add_special_tokens=False)["input_ids"]
        yield from (torch.tensor([token]) for token in reply[:max_new_tokens])

    def known(model, ids, **_):
        return TokenScores(torch.zeros(1, ids.shape[1] - 1), torch.ones(1, ids.shape[1] - 1, dtype=torch.bool))

    monkeypatch.setattr(answers, "stream", told)
    monkeypatch.setattr(answers, "score_tokens", known)
