"""What a search found, in a few sentences: which extension, how much better than which other, and how certain."""

from __future__ import annotations

import math

from ropewalk.measure.metrics.intervals import TOO_FEW_PROJECTS, Estimate
from ropewalk.search.final_test import FinalTest, FitResult

TOO_FEW = "which has too few texts of the longest length that can be scored"
LIMITS = {"max_damage": "exceeds", "max_slowdown": "exceeds", "min_retrieval": "falls below"}


def words(fit: FitResult) -> str:
    """Which extension was written, how much better it is than which other, and how certain that is."""
    goal, winner = fit.goal, fit.written
    sentences = [
        f"Written: {winner.line}, {_standing(fit)}.",
        _broken(fit),
        f"On {winner.loss.of} texts that the search did not see, {goal.scored} have a loss of {winner.loss.value:.3f} "
        "nats.",
        _lead_over_rival(fit) if winner is fit.answer else _why_not_the_choice(fit),
        _lead_on_other_text(fit),
        _out_of_budget(fit),
        f"The loss on short texts changes by {_signed(winner.damage)}, and {_time(winner)}.",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _standing(fit: FitResult) -> str:
    if fit.written is not fit.answer:
        among = ", among those that keep to the goal" if _has_limits(fit) else ""
        return f"the best hand-set extension on the test texts{among}"
    return f"the best of {_trial_count(fit)} on the fitting texts"


def _has_limits(fit: FitResult) -> bool:
    return any(getattr(fit.goal, name) is not None for name in LIMITS)


def _broken(fit: FitResult) -> str:
    """What is written breaks a condition where every tested extension does."""
    if fit.written.keeps_to(fit.goal):
        return ""
    others = "no other tested extension keeps to the goal there"
    return f"On the test texts it {excess(fit, fit.written)}; on the fitting texts it did not, and {others}."


def excess(fit: FitResult, tested: FinalTest) -> str:
    """Which conditions an extension breaks on the test texts, and by how much."""
    measured = {
        "max_damage": _signed(tested.damage),
        "max_slowdown": "not known" if math.isnan(tested.slowdown) else f"{tested.slowdown:.2f}",
        "min_retrieval": f"{tested.keys.value:.0%}" if tested.keys else "not measured",
    }
    return " and ".join(
        f"{LIMITS[name]} --{name.replace('_', '-')} {getattr(fit.goal, name):g}: {measured[name]}"
        for name in tested.broken(fit.goal)
    )


def _trial_count(fit: FitResult) -> str:
    """The number of trials."""
    return f"{len(fit.history) - _proposed_count(fit)} hand-set and {_proposed_count(fit)} proposed extensions"


def _proposed_count(fit: FitResult) -> int:
    """How many trials are not set by hand."""
    return sum(not trial.seed for trial in fit.history)


def _lead_over_rival(fit: FitResult) -> str:
    rival = fit.rival
    if rival is None:
        return ""
    if rival.extension == fit.answer.extension:
        outcome = "no proposed one is better on the fitting texts" if _proposed_count(fit) else "none was proposed"
        return f"It is a hand-set extension: {outcome}."
    lead = f"That is {_margin(rival.behind)} {rival.line}, the best hand-set extension on these texts"
    return f"{lead}: {_certainty(rival.behind)}.{_margin_when_fitting(fit, rival)}"


def _lead_on_other_text(fit: FitResult) -> str:
    """Whether the lead holds on text of another kind."""
    if fit.elsewhere is None:
        return f"It was not judged on {_kind(fit.not_elsewhere)}, {TOO_FEW}." if fit.not_elsewhere else ""
    corpus, answer, (_, *by_hand) = fit.elsewhere
    lead = f"On {answer.loss.of} texts of {_kind(corpus)}, of which the search saw none, the search's choice"
    others = [one for one in by_hand if one.extension != answer.extension]
    if not others:
        return f"{lead} has a loss of {answer.loss.value:.3f} nats."
    behind = others[0].behind
    if behind.low == behind.high == 0:
        return f"{lead} has the same loss as {others[0].line}."
    return f"{lead} has a loss {_margin(behind)} that of {others[0].line}: {_certainty(behind)}."


def _kind(corpus: str) -> str:
    return corpus.removeprefix("all:")


def _why_not_the_choice(fit: FitResult) -> str:
    """Why the search's choice is not the one written."""
    if not fit.answer.has_loss:
        return f"The search's choice ({fit.answer.line}) has no finite loss there, and is not written."
    value, low, high, of = fit.written.behind
    less = _margin(Estimate(-value, -high, -low, of))
    chosen = f"{fit.answer.line}, the best of {_trial_count(fit)} on the fitting texts"
    over = f"That is {less} the search's choice ({chosen}): {_certainty(fit.written.behind)}."
    if fit.answer.keeps_to(fit.goal):
        return over
    return f"{over} The search's choice is not written: on the test texts it {excess(fit, fit.answer)}."


def _out_of_budget(fit: FitResult) -> str:
    """How many hand-set extensions there was no time for, or that there was none for proposals."""
    if fit.budget is None:
        return ""
    if not fit.untried:
        spent = f"The search had no time to propose any (the budget is {fit.budget:.0f} s): take a longer --budget."
        return "" if _proposed_count(fit) else spent
    lead = f"The search had no time for {fit.untried} more hand-set extensions (the budget is"
    return f"{lead} {fit.budget:.0f} s): a longer --budget covers all of them, and proposes others."


def _time(tested: FinalTest) -> str:
    if math.isnan(tested.slowdown):
        return "its time cannot be compared: the base model was read on another kind of device"
    return f"a text takes {tested.slowdown:.1f} times as long as with the base model"


def _margin(behind: Estimate) -> str:
    value, low, high, of = behind
    if value < 0:
        value, low, high = -value, -high, -low
    ends = Estimate(value, low, high, of).why_open or f"{low:.3f}, {high:.3f}"
    return f"{value:.3f} [{ends}] {'less' if behind.value >= 0 else 'more'} than"


def _certainty(behind: Estimate) -> str:
    """Whether a difference is beyond chance; a rival that is surely better has been written instead."""
    if behind.clear_of(0):
        return "the 95 % interval excludes 0"
    few = behind.why_open == TOO_FEW_PROJECTS
    return f"{TOO_FEW_PROJECTS if few else 'not enough texts'} to tell them apart"


def _margin_when_fitting(fit: FitResult, rival: FinalTest) -> str:
    """Over-fitting: the same margin on the fitting texts."""
    rival_loss = next(
        (trial.figures.loss for trial in fit.history if trial.extension == rival.extension and trial.figures), None
    )
    if rival_loss is None or fit.chosen.figures is None:
        return ""
    return f" On the fitting texts the margin is {rival_loss - fit.chosen.figures.loss:.3f}."


def _signed(change: Estimate) -> str:
    return f"{change.value:+.3f} [{change.why_open or f'{change.low:+.3f}, {change.high:+.3f}'}]"
