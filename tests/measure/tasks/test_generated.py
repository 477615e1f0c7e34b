"""Conversations, graphs and dictionaries: readers are right, lengths are exact, scores are those of the authors."""

import json
import re
from collections import deque
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.tasks import Coreference, GraphWalks, JsonRecall
from ropewalk.measure.tasks.generated.coreference import PosedConversation, ordinal, similarity
from ropewalk.measure.tasks.generated.graph_walks import f1, named_nodes, parents, search

from measure import oracles
from measure.subjects import model
from train.texts import tokenizer

TASKS = [Coreference(), Coreference(needles=4), GraphWalks(), GraphWalks(depth=0), JsonRecall(), JsonRecall(ids="uuid")]
LENGTH = 1500
each_task = pytest.mark.parametrize("task", TASKS, ids=str)
PLACES = {"1st": 0, "2nd": 1, "3rd": 2, "4th": 3}


def edges_of(text):
    return re.findall(r"^(\w{4}) -> (\w{4})$", text.partition("Here is the graph")[2], flags=re.MULTILINE)


def walked(text):
    """The answer to a graph's question, by a search of its own."""
    edges, question = edges_of(text), text[text.rindex("Operation:") :]
    node = re.search(r"node (\w+)", question)[1]
    if "parents" in question:
        return {source for source, target in edges if target == node}
    distance, queue = {node: 0}, deque([node])
    while queue:
        here = queue.popleft()
        for source, target in edges:
            if source == here and target not in distance:
                distance[target] = distance[here] + 1
                queue.append(target)
    depth = int(re.search(r"depth (\d+)", question)[1])
    return {other for other, steps in distance.items() if steps == depth}


def recalled(text):
    """The value of the last key, from the dictionary alone."""
    table = json.loads(text[text.index("{") : text.index("}") + 1])
    return table[re.findall(r"Key: (\S+)", text)[-1]]


def repeated(text):
    """The marker and the text that is asked for."""
    marker, place, kind, topic = re.search(
        r"Prepend (\d+) to the (\w+) \(1 indexed\) (\w+) about the (\w+)\.", text
    ).groups()
    texts = re.findall(rf"User: Write a {kind} about the {topic}\.\nAssistant: (.+)\n", text)
    return f"{marker} {texts[PLACES[place]]}"


def solver(task):
    solve = {"coreference": repeated, "json_recall": recalled}.get(task.name)
    return solve or (lambda text: "[" + ", ".join(sorted(walked(text))) + "]")


@pytest.mark.sampled(cases=2)
@each_task
def test_who_reads_the_prompt_is_right_and_a_random_model_is_wrong(who, monkeypatch, task):
    headline = task.headline
    assert [task.measure(who, LENGTH, sample)[headline] for sample in range(2)] == [0, 0]
    for sample in range(4):
        prompt = task.prompt(who, LENGTH, sample)
        said = prompt.answer.strip()
        right = solver(task)(prompt.text)
        assert named_nodes(said) == named_nodes(right) if task.name == "graph_walks" else said == right
    oracles.put(monkeypatch, who, solver(task))
    results = [task.measure(who, LENGTH, sample) for sample in range(4)]
    assert [result[headline] for result in results] == [1] * 4
    assert all(result["right"] for result in results)


@pytest.mark.sampled(cases=8)
@each_task
@pytest.mark.parametrize("length", [1400, 1473, 1900])
def test_a_prompt_with_its_answer_has_the_length_to_the_token(who, task, length):
    spare = 4 if task.name == "graph_walks" else 0
    for sample in range(3):
        assert task.prompt(who, length, sample).length + spare == length


@each_task
def test_a_length_without_room_is_refused_with_the_least(who, task):
    with pytest.raises(
        DoesNotFit, match=r"length must be at least \d+, for the prompt without filler, got 100"
    ) as refused:
        task.require(who, [100, 2000])
    least = int(re.search(r"at least (\d+)", str(refused.value))[1])
    # Another length draws other words, so its least is near, not the same.
    task.require(who, [least + 60])


@pytest.mark.sampled(cases=3)
@each_task
def test_longer_texts_have_more_units(who, task):
    unit = {"coreference": "Assistant:", "graph_walks": " -> ", "json_recall": '": "'}[task.name]
    counts = [task.prompt(who, length, 0).text.count(unit) for length in (1400, 2800)]
    assert counts[1] > counts[0] + 6


def test_f1_by_hand():
    """One of two named is right, and one of three right ones is named: 1/2 and 1/3."""
    assert f1({"a", "b"}, {"b", "c", "d"}) == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))
    assert f1({"a"}, {"b"}) == 0
    assert f1(set(), {"b"}) == 0
    assert f1(set(), set()) == 1
    assert f1({"a", "b"}, {"b", "a"}) == 1


@given(st.sets(st.integers(0, 9), min_size=1), st.integers(0, 10))
def test_no_random_set_scores_more_than_naming_every_node(right, size):
    """Over all sets of one size the mean F1 is 2 (size * right / 10) / (size + right)."""
    assert (2 * (size * len(right) / 10) / (size + len(right))) <= f1(set(range(10)), right) + 1e-12


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (" [abcd, efgh]\nmore [ijkl]", {"abcd", "efgh"}),
        ("[abcd]", {"abcd"}),
        ("[]", set()),
        ("[ abcd ,, efgh, ]", {"abcd", "efgh"}),
        ("abcd, efgh", set()),
        ("[abcd, efgh", set()),
    ],
)
def test_nodes_are_read_from_brackets(text, nodes):
    assert named_nodes(text) == nodes


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_a_search_by_layers_is_a_breadth_first_search(seed, depth):
    walk = search(Random(seed), [f"n{number:03}" for number in range(200)], depth)
    text = "Here is the graph\n" + "".join(f"{a} -> {b}\n" for a, b in walk.edges) + f"Operation: {walk.operation}"
    assert walked(text) == set(walk.answer)
    assert len(set(walk.answer)) == len(walk.answer)


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("depth", [0, 1, 2, 4])
def test_other_edges_do_not_change_the_answer(who, depth):
    task = GraphWalks(depth=depth)
    for sample in range(6):
        posed = task.posed(who, 2000, sample)
        assert walked(posed.prompt.text) == posed.answer
        edges = edges_of(posed.prompt.text)
        nodes = {node for edge in edges for node in edge}
        assert len(edges) == len(set(edges))
        assert posed.chance == pytest.approx(2 * len(posed.answer) / (len(nodes) - 1 + len(posed.answer)))


def test_parents_have_other_children_and_the_child_has_none_of_them_as_only_edge():
    walk = parents(Random(0), [f"n{number:03}" for number in range(20)])
    assert {source for source, _ in walk.edges} == set(walk.answer) <= set(walk.targets)
    assert walk.start not in walk.targets
    assert walk.start in walk.sources


def test_half_a_set_has_its_f1(who, monkeypatch):
    task = GraphWalks()
    right = sorted(task.posed(who, LENGTH, 0).answer)
    oracles.put(monkeypatch, who, lambda text: f"[{right[0]}, none]")
    result = task.measure(who, LENGTH, 0)
    assert result["score"] == pytest.approx(2 / (2 + len(right)))
    assert not result["right"]
    numbers = task.condense([result, {**result, "score": 1.0, "right": True, "chance": 0.5}])
    assert numbers["score"].value == pytest.approx((result["score"] + 1) / 2)
    assert numbers["right"].value == 0.5
    assert numbers["chance"].value == pytest.approx((result["chance"] + 0.5) / 2)


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        (" 71432 abcd", 0.5),  # "ab" in common: 2 * 2 / (4 + 4)
        (" 71432 abxx\nand more", 1.0),
        ("71432abxx", 1.0),
        ("abxx", 0.0),
        (" it is 71432 abxx", 0.0),
        ("", 0.0),
        (" 71432", 0.0),
    ],
)
def test_similarity_by_hand(reply, score):
    assert similarity(reply, "71432", "abxx") == score


def test_by_chance_one_of_the_texts_to_the_same_request_is_repeated():
    """Of "abxx" and "abcd", which have half in common: (1 + 1/2) / 2."""
    assert PosedConversation(None, "71432", ("abxx", "abcd"), 0, 0.0).chance == 0.75


def test_ordinals():
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 101, 111)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "101st", "111th")
    ]


@pytest.mark.parametrize("needles", [2, 5])
def test_a_conversation_has_as_many_identical_requests_and_no_more(who, needles):
    task = Coreference(needles=needles)
    asked = set()
    for sample in range(8):
        posed = task.posed(who, 1900, sample)
        text = posed.prompt.text
        kind, topic = re.search(r"\(1 indexed\) (\w+) about the (\w+)\.", text).groups()
        texts = re.findall(rf"User: Write a {kind} about the {topic}\.\nAssistant: (.+)\n", text)
        assert tuple(texts) == posed.texts
        assert len(set(texts)) == needles
        asked.add(posed.asked)
        assert len(re.findall(r"User: Write a (\w+) about the (\w+)\.", text)) > needles
    assert len(asked) > 1


def test_the_pair_of_a_sample_stands_at_its_depth(who):
    task = JsonRecall(samples=4)
    assert [task.depth(sample) for sample in range(4)] == [0.125, 0.375, 0.625, 0.875]
    for sample in range(4):
        posed = task.posed(who, 3000, sample)
        text = posed.prompt.text
        table = json.loads(text[text.index("{") : text.index("}") + 1])
        assert len(table) == posed.pairs > 40
        key, *_ = re.findall(r"Key: (\S+)", text)[::-1]
        assert list(table).index(key) == round(task.depth(sample) * (posed.pairs - 1))
        assert len(set(table) | set(table.values())) == 2 * len(table)
        shown = re.findall(r"Key: (\S+)\nCorresponding value: (\S+)\n", text)
        assert len(shown) == 2
        assert all(table[name] == value for name, value in shown)
        assert key not in dict(shown)
    assert task.measure(who, 3000, 0)["chance"] == pytest.approx(1 / task.posed(who, 3000, 0).pairs)
    assert JsonRecall(samples=4).identity(1) != JsonRecall(samples=9).identity(1)  # at another depth


def test_titles_name_the_operation():
    assert [GraphWalks(depth=depth).title for depth in (0, 3)] == ["graph_walks_parents", "graph_walks_bfs_3"]


def test_what_is_refused(who):
    with pytest.raises(InvalidValue, match="needles must be above 1"):
        Coreference(needles=1)
    with pytest.raises(InvalidValue, match="depth must be at least 0"):
        GraphWalks(depth=-1)
    with pytest.raises(InvalidValue, match="ids must be 'short' or 'uuid'"):
        JsonRecall(ids="long")
    short = Subject(model=model(), tokenizer=tokenizer(), corpus=who.corpus, longest=100_000)
    with pytest.raises(DoesNotFit, match="held-out documents of 100000 tokens"):
        JsonRecall().require(short, [1000])
