"""Two real models in every engine, on a real text within and beyond 8,192 tokens: log-probabilities and greedy tokens.

make real-engines                      an hour or two of two cores; each row is written when it is measured
    --engines llama.cpp | mlx | vllm   of the three
    --models NAME ...                  of the two
    --lines LINE ...                   of the extensions below
    --lengths N ...                    tokens of the text (1500 9000)

Ours and theirs are in float32, from the same weights. Where a token is written otherwise, it is said how far the two
candidates are apart in our own log-probabilities: rounding decides what is nearly tied.
"""

import argparse
from functools import lru_cache
from pathlib import Path
from pydoc_data.topics import topics
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

import ropewalk as rw

from real_engines import process
from real_engines.reading import read_and_write
from real_engines.record import Record
from real_engines.served import EXACT, SCRIPTS
from real_engines.vllm.asking import Job, ask
from tools.real_models import MODELS, fetched_model

FOLDER, RESULTS = Path("build/real"), process.ROOT / "docs" / "results" / "engines"
SMOLLM2, GEMMA = MODELS
TARGETS = {SMOLLM2: 32_768, GEMMA: 65_536}
VERSIONS = {"llama.cpp": "b11739", "mlx": "0.32.2", "vllm": "0.32.0"}
LENGTHS = (1500, 9000)
WRITTEN = 32  # greedy tokens behind each text
BOUND = 1e-2  # nats, in the mean: without the schedule it is a hundred times as much
TIE = 0.05  # nats
SECONDS = 3600
RAMP = "frequencies.by_parts:factor={0:g},ramp=turns+scales.yarn_temperature:factor={0:g}"
PLAIN = ("yarn:factor={0:g}", RAMP)
PLUGIN = ("rerope:window=2048+log_n", "dynamic_yarn")
LINES = {"llama.cpp": PLAIN, "mlx": PLAIN, "vllm": (*PLAIN, *PLUGIN)}
BY_NAME = ("yarn:factor={0:g}", "by_parts:factor={0:g}")  # llama.cpp knows no divisors of Gemma


class Answer(NamedTuple):
    """Of one text: the log-probability of each token but the first, and the tokens written behind it."""

    said: numpy.ndarray
    chosen: list[int]


class OwnAnswer(NamedTuple):
    """Ours, with the log-probabilities among which each token was chosen [written, words]."""

    said: numpy.ndarray
    chosen: list[int]
    among: numpy.ndarray

    def greedy(self, theirs):
        """Whether the engine writes the same; else the first other token, and how far the two are apart."""
        pairs = zip(self.chosen, theirs, self.among, strict=True)
        other = next(((i, row[one] - row[two]) for i, (one, two, row) in enumerate(pairs) if one != two), None)
        if other is None:
            return f"{len(self.chosen)} equal"
        return f"{other[0]} equal, then {'a near tie' if other[1] < TIE else 'another'}: {other[1]:.1e} apart"


def cases(engines, models, wanted):
    """Engine, model and line, the model's lines one after the other: our own answers are shared."""
    rows = []
    for name in models:
        factor = TARGETS[name] // MODELS[name].lengths[0]
        for engine in engines:
            lines = BY_NAME if (engine, name) == ("llama.cpp", GEMMA) else LINES[engine]
            rows += [(name, line.format(factor), engine) for line in lines]
    return sorted((row for row in rows if not wanted or row[1] in wanted), key=lambda row: (row[0] == GEMMA, row[1]))


@lru_cache(maxsize=1)
def opened(name):
    """The model in float32, and the tokens of Python's own documentation."""
    place = fetched_model(name, FOLDER)
    ids = AutoTokenizer.from_pretrained(place).encode("\n".join(topics.values()))
    return AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32).eval(), ids


@lru_cache(maxsize=2)
@torch.no_grad()
def ours(name, line, mode, lengths):
    """What the model itself says of each length and writes behind it, through its cache as the engines do."""
    model, ids = opened(name)
    with rw.extended(model, line, target_len=TARGETS[name], mode=mode):
        answers = []
        for length in lengths:
            cache = DynamicCache(config=model.config)

            def step(part, start, cache=cache):
                rows = model(torch.tensor([part]), past_key_values=cache, use_cache=True).logits[0]
                return rows.numpy()

            answers.append(OwnAnswer(*read_and_write(step, ids[:length], WRITTEN)))
    return answers


def theirs(engine, command, texts, folder):
    """What the engine says and writes, by the printed command."""
    if engine == "vllm":
        room = {"VLLM_CPU_KVCACHE_SPACE": "4"}
        job = Job(command, texts, decode=WRITTEN, together=False)
        (served,) = ask({"job": job}, folder, SECONDS, **room).values()
        for said, text in zip(served.answers, texts, strict=True):
            assert said.ids[:, 0].tolist() == text[1:]  # the prompt's own token stands first
        return [Answer(said.values[:, 0].numpy(), said.chosen) for said in served.answers]
    command += EXACT if engine == "llama.cpp" else ""
    jobs = {str(len(text)): {"command": command, "ids": text, "write": WRITTEN} for text in texts}
    said = process.ask(engine, SCRIPTS[engine], jobs, folder, SECONDS)
    return [Answer(said[f"{name}/said"], said[f"{name}/chosen"].tolist()) for name in jobs]


def measure(name, line, engine, lengths):
    """One case, written down; and whether its bound holds."""
    model, ids = opened(name)
    with TemporaryDirectory() as folder, rw.extended(model, line, target_len=TARGETS[name]):
        said = rw.export(model, Path(folder) / "exported", target=engine, target_len=TARGETS[name])
        answers = theirs(engine, said.command, [ids[:length] for length in lengths], folder)
    own = ours(name, line, "attention" if said.kind == "plugin" else None, lengths)
    record, good = Record(engine, VERSIONS[engine]), True
    for length, mine, answer in zip(lengths, own, answers, strict=True):
        gaps, greedy = numpy.abs(mine.said - answer.said), mine.greedy(answer.chosen)
        good &= bool(gaps.mean() < BOUND) and "another" not in greedy
        record.read(name, line, "float32", gaps, greedy, BOUND, kind=said.kind, tokens=length)
        print(engine, record.rows[-1], flush=True)
    record.write(RESULTS)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", choices=list(VERSIONS), default=list(VERSIONS))
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--lines", nargs="+")
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    asked = parser.parse_args()
    wanted, lengths = cases(asked.engines, asked.models, asked.lines), tuple(asked.lengths)
    wrong = [case for case in wanted if not measure(*case, lengths)]
    raise SystemExit(f"beyond the bound, or with another token: {wrong}" if wrong else 0)


if __name__ == "__main__":
    main()
