"""The tables between the words of results/README.md, against pages that other code writes of the same records."""

import gzip
import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from studies import pages, tables as module
from tools.generated_part import has_part

RESULTS = Path(module.__file__).parent / "results"


def rows(text):
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.splitlines()][2:]


def of_page(path, heading, name, column):
    """The mean in a cell of a page's table."""
    part = (RESULTS / path).read_text().partition(heading)[2]
    (row,) = re.findall(rf"^\| {re.escape(name)} \|(.*)$", part.partition("\n## ")[0], flags=re.MULTILINE)
    return float(row.split("|")[column].split()[0])


def test_the_page_has_every_table():
    page = (RESULTS / "README.md").read_text()
    assert all(has_part(page, name) for name in module.TABLES)
    assert page == pages.results_page()


def test_losses_of_the_far_table_are_those_of_its_page():
    names = ["base", *module.FAR_SCHEDULES]
    for name, (_, *losses) in zip(names, rows(module.tuned_far(RESULTS)), strict=True):
        for column, loss in enumerate(losses, start=2):
            steps = "0 | -" if name == "base" else "1,000 | 3"
            expected = of_page("tuned-far/tuned.md", "## Loss", f"{name} | {steps}", column - 2)
            assert float(loss) == pytest.approx(expected, abs=0.0051)


@pytest.mark.parametrize("study", ["tuned-zoo", "tuned-default"])
def test_losses_are_those_of_the_tuning_tables(study):
    table = module.tuned(study)(RESULTS)
    assert [row[0] for row in rows(table)] == ["untrained", "200 steps", "1,000 steps"]
    for steps, *losses in rows(table):
        for name, loss in zip(module.SCHEDULES, losses, strict=True):
            count = "0" if steps == "untrained" else steps.removesuffix(" steps")
            expected = of_page(f"{study}/tuned.md", "## Loss", f"{name} | {count}", -2)
            assert float(loss) == pytest.approx(expected, abs=0.0056)


def of_seeds(name):
    """The accuracy at 8x of every seed, in percent, from the records."""
    found = {}
    for place in (RESULTS / "zoo" / "measured").glob(f"{name}-[0-9].json.gz"):
        kept = json.loads(gzip.decompress(place.read_bytes()))
        (row,) = (row for row in kept["figures"] if (row["times"], row["kind"]) == (8, "non-repeated"))
        found[kept["seed"]] = 100 * row["accuracy"]
    return found


def test_accuracies_are_those_of_the_zoo():
    page = "zoo/zoo.md"
    for name, accuracy, gain in rows(module.beyond_a_window(RESULTS)):
        assert float(accuracy) == pytest.approx(of_page(page, "non-repeated\n", name, 5), abs=0.051)
        ours, window = of_seeds(name), of_seeds(module.WINDOW)
        both = ours.keys() & window.keys()  # a gain is that of the seeds that both have
        assert len(both) >= 3
        assert float(gain.split()[0]) == pytest.approx(fmean(ours[seed] - window[seed] for seed in both), abs=0.051)
    for name, without, with_it, gain in rows(module.from_afar(RESULTS)):
        assert float(without) == pytest.approx(of_page(page, "non-repeated\n", name, 5), abs=0.051)
        assert float(gain.split()[0]) == pytest.approx(float(with_it) - float(without), abs=0.11)


def test_rows_beside_a_window_are_the_best_first():
    accuracies = [float(row[1]) for row in rows(module.beyond_a_window(RESULTS))]
    assert accuracies == sorted(accuracies, reverse=True)


GUIDE_NAMES = {"xpos+bca": "xpos", "randomized": "randomized_rotary"}  # as the zoo has them
RECORDED_AS = {"60%": "longer_from_40", "Qwen3": "key_norm"}  # rows without a method's name, by a word of theirs


@pytest.mark.parametrize("guide", ["docs/guides/train-a-model.md", "docs/zh/guides/train-a-model.md"])
def test_the_training_guide_quotes_the_zoo(guide):
    """Accuracy at 1x and 8x, and at 8x of repeated text."""
    text = (RESULTS.parents[1] / guide).read_text()
    table = re.search(r"(?:^\|.*\n){10,}", text, flags=re.MULTILINE)[0].rstrip()
    quoted = rows(table)
    assert len(quoted) == 12
    for first, at_1x, at_8x, repeated, words in quoted:
        name = GUIDE_NAMES.get(first, first)
        name = next((known for word, known in RECORDED_AS.items() if word in f"{first} {words}"), name)
        fresh = "## Next-token accuracy in percent, non-repeated\n"
        told = [of_page("zoo/zoo.md", fresh, name, column) for column in (1, 5)]
        told.append(of_page("zoo/zoo.md", "## Next-token accuracy in percent, repeated\n", name, 5))
        assert [f"{percent}%" for percent in told] == [at_1x, at_8x, repeated], first
