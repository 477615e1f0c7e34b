"""Fixes for what lm-evaluation-harness gets wrong on long texts (lm-eval 0.4.13).

- Prompts that are too long lose their beginning, with a warning: `StrictRequests` raises.
- A limit takes the first samples, so of several lengths only the first is measured: `choose` takes some of each.
- RULER reports -1 for a length that was not measured, and its group averages only the length 4,096: `present`, `means`.
- RULER requires all wordings of an answer instead of one of them: `any_of`.
- RULER's chains and common words never end if their smallest example does not fit: `require_examples_fit`.

Not fixed: RULER makes 500 samples whatever the limit, and fills a length in coarse steps, so that prompts can be a
third shorter (the longest request of each task is reported); perplexity is that of disjoint windows; BABILong counts an
answer that names the right place among others, which its authors do not. Tasks that do not load: `definitions`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from ropewalk.errors import DoesNotFit

WHY_NOT_CUT = (
    "requests are not cut, since they would lose their question;"
    " --fitting leaves out what is too long, --answer shortens what the model may write"
)
ABSENT = -1.0
CONTROL = re.compile(r"[\x00-\x1f]")
CHAINS, WORDS = {"ruler_vt", "ruler", "longcxt"}, {"ruler_cwe", "ruler", "longcxt"}  # tasks and their groups
EXAMPLE, CHAIN_ANSWER, WORDS_ANSWER = 500, 30, 120  # tokens that RULER allows for an example and for answers


class StrictRequests:
    """A mixin for the harness's model: requests that do not fit are refused before any is run."""

    longest_of: dict[str, int]  # tokens of each task's longest request, its answer included
    quiet: bool

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Log-likelihoods of continuations after contexts."""
        self._require_room((request.task_name, self.pair_tokens(*request.args)) for request in requests)
        results: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=self.quiet)  # type: ignore[misc]
        return results

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """What the model writes after each prompt."""
        self._require_room((request.task_name, self.prompt_tokens(*request.args)) for request in requests)
        texts: list[str] = super().generate_until(requests, disable_tqdm=self.quiet)  # type: ignore[misc]
        return texts

    def _loglikelihood_tokens(self, requests: Any, disable_tqdm: bool = False, override_bs: int | None = None) -> Any:
        return super()._loglikelihood_tokens(requests, self.quiet, override_bs)  # type: ignore[misc]

    def pair_tokens(self, context: str, continuation: str) -> int:
        """Tokens that are read: all but the last."""
        me: Any = self
        if not context:
            return len(me.tok_encode(continuation, add_special_tokens=False))
        return sum(map(len, me._encode_pair(context, continuation))) - 1

    def prompt_tokens(self, context: str, options: Mapping[str, Any]) -> int:
        """Tokens of a prompt, and those that the model may write after it."""
        from lm_eval.models.utils import normalize_gen_kwargs

        me: Any = self
        answer: int = normalize_gen_kwargs(dict(options), me.max_gen_toks)["max_gen_toks"]
        return int(me.tok_batch_encode([context])[0].shape[1]) + answer

    def _require_room(self, sizes: Iterable[tuple[str, int]]) -> None:
        for task, size in sizes:
            self.longest_of[task] = max(size, self.longest_of.get(task, 0))
        room: int = self.max_length  # type: ignore[attr-defined]
        task, size = max(self.longest_of.items(), key=lambda item: item[1])
        if size > room:
            rule = f"at least {size:,}, for the longest request of {task} with its answer"
            raise DoesNotFit("--to", rule, room, remedy=WHY_NOT_CUT)


def choose(docs: Iterable[Mapping[str, Any]], limit: int) -> list[int]:
    """The indices of the first `limit` samples of each length."""
    taken: Counter[Any] = Counter()
    indices = []
    for number, doc in enumerate(docs):
        length = doc.get("max_length")
        taken[length] += 1
        if taken[length] <= limit:
            indices.append(number)
    return indices


def fix_scoring(tasks: Iterable[Any]) -> None:
    """Score RULER's questions as its authors do."""
    for task in tasks:
        if getattr(task.config.process_results, "__name__", "") == "process_results_part":
            task.config.process_results = any_of


def any_of(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """1 if the text contains any of the right answers.

    Source: Hsieh et al. 2024, arXiv:2404.06654, `string_match_part` and `postprocess_pred` of its code.
    """
    text = CONTROL.sub("\n", results[0].strip()).strip().lower()
    return {str(doc["max_length"]): float(any(str(answer).lower() in text for answer in doc["outputs"]))}


def present(metric: str, value: Any) -> bool:
    """Whether a metric is a number that was measured. RULER's metrics are named by their lengths."""
    return isinstance(value, int | float) and not (metric.isdigit() and value == ABSENT)


def was_measured(metric: str, sample: Mapping[str, Any]) -> bool:
    """Whether a sample counts in a metric."""
    return metric in sample["metrics"] and not (metric.isdigit() and sample[metric] == ABSENT)


def means(members: Iterable[Any]) -> dict[str, float]:
    """The scores of a group: at each length, the mean over the tasks that have it."""
    values: dict[str, list[float]] = {}
    for score in members:
        if score.metric.isdigit():
            values.setdefault(score.metric, []).append(score.value)
    return {metric: sum(scores) / len(scores) for metric, scores in values.items()}


def require_examples_fit(names: Iterable[str], tokenizer: PreTrainedTokenizerBase, lengths: Sequence[int]) -> None:
    """Refuse tokenizers that need so many tokens that RULER would search shorter examples for ever."""
    tasks, shortest = set(names), min(lengths)

    def count(text: str) -> int:
        return len(tokenizer(text, verbose=False)["input_ids"])

    if tasks & CHAINS:
        from lm_eval.tasks.ruler import vt_utils as chains

        example = count(" ".join(map(str, chains.generate_input_output(5, 1, 4, is_icl=True))))
        _require("variable tracking's example", EXAMPLE, example + CHAIN_ANSWER)
        whole = count(" ".join(map(str, chains.generate_input_output(10, 1, 4)))) + example + CHAIN_ANSWER
        _require("variable tracking", shortest, whole)
    if tasks & WORDS:
        from lm_eval.tasks.ruler import cwe_utils as words

        example_text, text, _ = words.generate_input_output(10, shortest)
        _require("common words", shortest, count(f"{example_text}\n{text}") + 2 * WORDS_ANSWER)


def _require(part: str, room: int, size: int) -> None:
    if size > room:
        sentence = f"this tokenizer needs {size} tokens for RULER's shortest {part}, and there is room for {room}"
        raise DoesNotFit.because("tokenizer", sentence, remedy="leave this task out, or ask for longer texts")
