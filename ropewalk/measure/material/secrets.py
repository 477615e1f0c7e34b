"""Words and numbers that are hidden in a text."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ropewalk.errors import DoesNotFit

# Words that needles are made of: plain English, with enough compounds for the longest texts.


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ADJECTIVES = _words("""
    amber ancient bitter blank blue bold brave brief bright broad brown calm careful cheerful clean clear
    clever cold copper crimson crooked curious curly daily damp dark deep distant dry dusty eager early
    earnest empty even faint famous fancy fast fierce final flat fresh gentle giant golden grand gray green
    happy heavy hidden hollow honest humble icy idle jolly keen large late lazy level light little lively
    lonely long loud lucky mellow mild modest narrow noble northern odd old orange pale patient plain polite
    proud purple quick quiet rapid rare ready red rough round rusty sandy scarlet secret shallow sharp shiny
    short shy silent silver simple sleepy slim slow small smooth soft solid southern steady steep stern
    still strange strong sturdy sunny swift tall tame thin tidy tiny upper violet warm weary western white
    wide wild wise wooden yellow young
""")
NOUNS = _words("""
    acorn anchor apple arrow badge barn basin basket beach bell bench berry blanket boat book bottle bowl
    branch bread brick bridge brook broom brush bucket button cabin cable camel candle canoe canyon carpet
    castle cellar chain chair chapel cherry circle clock cloud coat comb compass cottage crane cup curtain
    desk dragon drawer drum eagle engine falcon farm feather fence ferry field flag flute forest fork
    fountain fox garden gate glove goose guitar hammer harbor hat hill honey horn house island jacket jar
    kettle key kite ladder lake lamp lantern leaf lemon letter lion map market meadow mill mirror moon
    mountain nail needle nest oak oar orchard organ oven owl paddle palace paper path pearl pebble pencil
    piano pillow pine plate plum pocket pond quilt rabbit raft ribbon river road robin rope saddle sail
    scarf school shell ship shore sofa spoon stable star stone stove street table tent tower train tree
    tunnel turtle valley village violin wagon wall well wheel whistle willow window wolf yard
""")
TOWNS = _words("""
    Aberdeen Basel Bergen Bologna Bruges Cordoba Cork Cracow Delft Dresden Florence Geneva Ghent Graz
    Groningen Lisbon Lucerne Malmo Nantes Oporto Ostrava Padua Riga Seville Siena Tallinn Tartu Toledo
    Trieste Turku Utrecht Vilnius
""")
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
PEOPLE = _words("""
    Agatha Bertram Clarissa Desmond Eleonora Ferdinand Gwendolyn Hannelore Ignatius Josephine Konstantin Leopold
    Mathilda Nathaniel Ottoline Percival Quentin Rosalind Sebastian Theodora Ulrich Valentina Winifred Yolanda
""")
LANDMARKS = {
    "the Eiffel Tower": "France",
    "the Colosseum": "Italy",
    "the Acropolis": "Greece",
    "Stonehenge": "England",
    "the Kremlin": "Russia",
    "the Taj Mahal": "India",
    "Machu Picchu": "Peru",
    "the Great Sphinx": "Egypt",
    "Mount Fuji": "Japan",
    "the Brandenburg Gate": "Germany",
    "the Alhambra": "Spain",
    "the Forbidden City": "China",
    "the Golden Gate Bridge": "America",
    "the Great Barrier Reef": "Australia",
    "Angkor Wat": "Cambodia",
    "Christ the Redeemer": "Brazil",
    "the Matterhorn": "Switzerland",
    "Chichen Itza": "Mexico",
    "the Charles Bridge": "Czechia",
    "the Petronas Towers": "Malaysia",
    "Borobudur": "Indonesia",
    "the Hagia Sophia": "Turkey",
    "Blarney Castle": "Ireland",
    "the Atomium": "Belgium",
}
COMPOUNDS = len(ADJECTIVES) * len(NOUNS)


def compound(random: Random) -> str:
    """Two words that rarely occur together."""
    return f"{random.choice(ADJECTIVES)}-{random.choice(NOUNS)}"


def compounds(random: Random, count: int) -> list[str]:
    """At most `count` compounds, all different."""
    chosen = random.sample(range(COMPOUNDS), min(count, COMPOUNDS))
    return [f"{ADJECTIVES[n // len(NOUNS)]}-{NOUNS[n % len(NOUNS)]}" for n in chosen]


# Numbers that are hidden in a text, and asked for after it has been read.
#
#     The secret number of Oslo is 48213.
#
# One text hides several, so that one reading answers all questions, each from a copy of the cache. Their places are
# counted from the end of the text: a shorter text is the end of a longer one, with the secrets that it has.


CITIES = (
    *("Oslo", "Lima", "Cairo", "Dublin", "Kyoto", "Vienna", "Nairobi", "Havana", "Lisbon", "Quito", "Riga", "Tunis"),
    *("Hanoi", "Bern", "Sofia", "Manila"),
)
LINE, QUESTION = "\nThe secret number of {city} is {key}.\n", "\nThe secret number of {city} is"


class Secret(NamedTuple):
    """One number: where its line begins, counted from the end of the text, and how it is asked for."""

    distance: int  # 1 is the last token
    tokens: int  # of its line
    question: tuple[int, ...]
    answer: tuple[int, ...]


class TextWithSecrets(NamedTuple):
    """A text as long as before: what the secrets take is cut in front."""

    ids_n: Tensor
    secrets: tuple[Secret, ...]

    def within(self, length: int) -> list[Secret]:
        """Those whose whole line is among the last tokens."""
        return [secret for secret in self.secrets if secret.distance <= length]

    def plain(self, last: int) -> Tensor:
        """Which of the last tokens are the text's own [last]."""
        plain = torch.ones(last, dtype=torch.bool)
        for secret in self.secrets:
            first = last - secret.distance
            plain[max(0, first) : max(0, first + secret.tokens)] = False
        return plain


def with_secrets(tokenizer: PreTrainedTokenizerBase, ids_n: Tensor, count: int, random: Random) -> TextWithSecrets:
    """A text with `count` secrets at even depths, fewer where they would take more than half of it.

    Each text draws its numbers and the order of the cities.
    """
    drawn = [_tokens(tokenizer, city, random.randrange(10_000, 100_000)) for city in random.sample(CITIES, count)]
    while 2 * sum(len(line) for line, *_ in drawn) > len(ids_n):
        drawn.pop()
    count, kept_n = len(drawn), ids_n[sum(len(line) for line, *_ in drawn) :]
    secrets, parts, distance, cut = list[Secret](), list[Tensor](), 0, len(kept_n)
    for number, (line, question, answer) in enumerate(drawn):  # from the last one to the first
        place = len(kept_n) - round(len(kept_n) * (number + 0.5) / count)
        parts[:0] = [torch.tensor(line, dtype=ids_n.dtype), kept_n[place:cut]]
        distance, cut = distance + cut - place + len(line), place
        secrets.append(Secret(distance, len(line), question, answer))
    return TextWithSecrets(torch.cat([kept_n[:cut], *parts])[-len(ids_n) :], tuple(secrets))


def _tokens(
    tokenizer: PreTrainedTokenizerBase, city: str, key: int
) -> tuple[Sequence[int], tuple[int, ...], tuple[int, ...]]:
    """The line, the question, and the answer, which begins where the question with it differs from the question."""

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    asked, answered = ids(QUESTION.format(city=city)), ids(f"{QUESTION.format(city=city)} {key}")
    same = next((n for n, (a, b) in enumerate(zip(asked, answered, strict=False)) if a != b), len(asked))
    if same < 1 or same == len(answered):
        raise DoesNotFit("tokenizer", "one that writes a question and its answer as more than one token", city)
    return ids(LINE.format(city=city, key=key)), tuple(answered[:same]), tuple(answered[same:])
