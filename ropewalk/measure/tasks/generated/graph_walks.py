"""Graph walks: a list of directed edges fills the length; which nodes are n steps from a node, or its parents?

    abcd -> uvwx    ...    Perform a BFS from node abcd with depth 2.    Final Answer: [...]

The nodes that are asked for, and the edges that decide, are the same few at every length; all other edges lead nowhere
near. The score is F1 of the set that the model names in brackets. `chance` is the F1 of naming every node (the start
aside): 2 a / (n + a) for a nodes out of n, more than a random set of any size scores.

Source: OpenAI 2025, the data set graphwalks (MIT), with its wording and its solved examples; a BFS asks for the nodes
at exactly that depth, as the data set does since 2026. Deviations: nodes are four letters, as in its examples, instead
of ten hexadecimal digits; graphs are generated, with few nodes to name; the prompt ends with "Final Answer:", for base
models; the few tokens that no edge fills are held-out text before the prompt.
"""

from __future__ import annotations

import re
import string
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar, NamedTuple

from ropewalk.measure.material.prompts import GrowingPrompt, Prompt, fill_prompt
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import LOSS, SHARE
from ropewalk.measure.tasks.answers import score_answer, write_answer
from ropewalk.measure.tasks.retrieval import Ranges, Retrieval
from ropewalk.methods.record import NOT_NEGATIVE
from ropewalk.methods.spec import Json

TASK = """You will be given a graph as a list of directed edges. You will also get a description of an operation to \
perform on the graph. Execute it, and return the set of nodes that it results in. If asked for a breadth-first search \
(BFS), only return the nodes that are exactly at that depth. If asked for the parents of a node, only return the nodes \
that have an edge leading to it.

Example graph:
uvwx -> alke
abcd -> uvwx
abcd -> efgh
efgh -> uvwx
Operation: Perform a BFS from node abcd with depth 1.
Final Answer: [uvwx, efgh]
Operation: Find the parents of node uvwx.
Final Answer: [abcd, efgh]

Here is the graph to operate on:
"""
BFS, PARENTS = "Perform a BFS from node {node} with depth {depth}.", "Find the parents of node {node}."
QUESTION = "Operation: {operation}\nFinal Answer:"
NODE_LETTERS = 4
WIDTH = (2, 4)  # nodes of a layer of the search, or parents
FEWEST_OTHER_EDGES, SHORTEST_EDGE = 8, 4  # other edges at least; tokens of an edge at least
SPARE = 4  # tokens that may be written beside as many as the answer has
Edge = tuple[str, str]


class Walk(NamedTuple):
    """A question about a graph: the edges that decide, and where others may begin and end."""

    operation: str
    start: str
    answer: tuple[str, ...]
    edges: tuple[Edge, ...]
    sources: tuple[str, ...]  # nodes of these edges that others may begin at without changing the answer
    targets: tuple[str, ...]


class PosedWalk(NamedTuple):
    """The prompt of a sample, its answer, and the F1 of naming all nodes."""

    prompt: Prompt
    answer: frozenset[str]
    chance: float


@dataclass(frozen=True, kw_only=True)
class GraphWalks(Retrieval):
    name: ClassVar[str] = "graph_walks"
    headline: ClassVar[str] = "score"
    shares: ClassVar[tuple[str, ...]] = ("score", "right")
    averages: ClassVar[Ranges] = {"loss": LOSS, "chance": SHARE}
    depth: Annotated[int, NOT_NEGATIVE, "steps of the breadth-first search; 0: ask for the parents of a node"] = 2

    @property
    def title(self) -> str:
        """With the operation."""
        return f"{self.name}_bfs_{self.depth}" if self.depth else f"{self.name}_parents"

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One graph."""
        prompt, answer, chance = self.posed(subject, length, sample)
        text = write_answer(subject, prompt, len(prompt.answer_ids) + SPARE, lambda reply: "]" in reply)
        score = f1(named_nodes(text), answer)
        loss = score_answer(subject, prompt).loss
        return {"score": score, "right": score == 1, "loss": loss, "chance": chance, "wrote": text}

    def prompt(self, subject: Subject, length: int, sample: int) -> Prompt:
        """The prompt of a sample: the same for every extension."""
        return self.posed(subject, length, sample).prompt

    def posed(self, subject: Subject, length: int, sample: int) -> PosedWalk:
        """A graph with a question."""
        random = self.chance(subject, length, sample)
        nodes = _nodes(random, length // SHORTEST_EDGE + 100)
        walk = search(random, nodes, self.depth) if self.depth else parents(random, nodes)
        edges, order = _add_others(random, walk, nodes, length // SHORTEST_EDGE), random.random()

        def listed(more: int) -> list[Edge]:
            return edges[: len(walk.edges) + FEWEST_OTHER_EDGES + more]

        def text(more: int) -> str:
            mixed = listed(more)
            Random(f"{order}/{more}").shuffle(mixed)
            lines = "".join(f"{source} -> {target}\n" for source, target in mixed)
            return TASK + lines + QUESTION.format(operation=walk.operation)

        answer = f" [{', '.join(walk.answer)}]"
        room = subject.tokens(answer) + SPARE
        prompt, more = fill_prompt(subject.tokenizer, GrowingPrompt(text, answer, room), length, subject.filler(random))
        others = {node for edge in listed(more) for node in edge} - {walk.start}
        return PosedWalk(prompt, frozenset(walk.answer), f1(others, frozenset(walk.answer)))


def f1(named: AbstractSet[str], right: AbstractSet[str]) -> float:
    """The harmonic mean of precision and recall of a set.

    f1({"a", "b"}, {"b", "c", "d"})    # 0.4: one of two named, one of three right ones
    """
    return 2 * len(named & right) / (len(named) + len(right)) if named or right else 1.0


def named_nodes(text: str) -> frozenset[str]:
    """The nodes in the first brackets of a text; none without brackets.

    named_nodes(" [abcd, efgh]")    # frozenset({"abcd", "efgh"})
    """
    inside = re.search(r"\[(.*?)\]", text)
    return frozenset(part.strip() for part in inside[1].split(",") if part.strip()) if inside else frozenset()


def search(random: Random, nodes: list[str], depth: int) -> Walk:
    """Layers of a breadth-first search; each node has an edge from the layer before, and some lead back."""
    layers = [[nodes.pop()]]
    edges = list[Edge]()
    for _ in range(depth):
        layers.append([nodes.pop() for _ in range(random.randint(*WIDTH))])
        edges += [(random.choice(layers[-2]), node) for node in layers[-1]]
        edges.append((random.choice(layers[-1]), random.choice(random.choice(layers[:-1]))))
    (start,), last = layers[0], tuple(layers[-1])
    operation = BFS.format(node=start, depth=depth)
    # An edge from the last layer leads to nodes that are nearer already, or farther than asked.
    return Walk(operation, start, last, tuple(edges), last, tuple(node for layer in layers for node in layer))


def parents(random: Random, nodes: list[str]) -> Walk:
    """A node with some parents, which have other children too."""
    child, named = nodes.pop(), tuple(nodes.pop() for _ in range(random.randint(*WIDTH)))
    edges = tuple((parent, child) for parent in named)
    return Walk(PARENTS.format(node=child), child, named, edges, (child, *named), named)


def _add_others(random: Random, walk: Walk, nodes: list[str], count: int) -> list[Edge]:
    """The edges that decide, then `count` others, all different; new nodes join as the list grows."""
    edges = dict.fromkeys(walk.edges)
    while len(edges) < len(walk.edges) + FEWEST_OTHER_EDGES + count:
        around = nodes[: FEWEST_OTHER_EDGES + len(edges) // 2]
        source, target = random.choice((*around, *walk.sources)), random.choice((*around, *walk.targets))
        if source != target:
            edges[source, target] = None
    return list(edges)


def _nodes(random: Random, count: int) -> list[str]:
    """Names of four letters, all different and none of the examples'."""
    names: dict[str, None] = {}
    while len(names) < count:
        name = "".join(random.choices(string.ascii_lowercase, k=NODE_LETTERS))
        names |= {} if name in TASK else {name: None}
    return list(names)
