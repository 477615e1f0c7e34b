"""Words that needles are made of: plain English, with enough compounds for the longest texts."""

from __future__ import annotations

from random import Random


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
