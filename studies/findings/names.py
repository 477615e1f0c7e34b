"""What models and methods are called in sentences and pictures."""

from __future__ import annotations

REAL, LARGER, CARRIED, SMALL = "SmolLM2, 135 M", "31 M", "carried, 6.8 M", "small, 0.7 M"
ONE = f"{REAL}; {LARGER}; {CARRIED} (one model each); {SMALL} (3 or 5 seeds)"
ONE_CHINESE = "SmolLM2 1.35 亿；3100 万；自带 680 万（各一个模型）；小模型 70 万（3 或 5 个种子）"
REAL_ALONE = "unchanged, last 8k alone"
LENGTHS = "length of the text, in trained lengths"
LABELS = {  # of what is not called by its line
    "bare": "unchanged",
    "rope": "unchanged",
    "rope_under_window": "plain, behind a window",
    "rope_under_yarn": "plain, read under YaRN",
    "rope_under_rerope": "plain, read under ReRoPE",
    "rope_under_by_parts": "plain, under NTK by parts",
    "rope_under_ntk": "plain, read under NTK",
    "rope_under_pi": "plain, read under PI",
    "rope_under_lm_infinite": "plain, under LM-Infinite",
    "marked_under_streaming": "marked, under StreamingLLM",
    "self_extend:window=4096+log_n": "self_extend+log_n, window 4096",
    "rerope:window=6144+log_n": "rerope+log_n, window 6144",
    "xpos": "xPos, blockwise attention",
    "hwfa": "HWFA",
    "hwfa_rerope": "HWFA with ReRoPE",
    "alibi": "ALiBi",
    "kerple": "KERPLE",
    "sandwich": "Sandwich",
    "yarn": "YaRN",
    "pi": "PI",
    "ntk": "NTK",
    "by_parts": "NTK by parts",
    "abf": "larger base",
    "drope": "DroPE",
    "none": "no schedule",
    "dynamic": "dynamic NTK",
    "dynamic_yarn": "dynamic YaRN",
    "streaming": "StreamingLLM",
    "lm_infinite": "LM-Infinite",
    "window": "window",
}
COLOUR_OF = {  # a line or a model of the zoo, and the method whose colour it has
    "bare": "rope",
    "none": "rope",
    "dynamic": "dynamic_ntk",
    "rope_under_window": "window",
    "rope_under_yarn": "yarn",
    "rope_under_rerope": "rerope",
    "rope_under_by_parts": "by_parts",
    "rope_under_ntk": "ntk",
    "rope_under_pi": "pi",
    "rope_under_lm_infinite": "lm_infinite",
    "marked_under_streaming": "streaming",
    "rope_with_slow_pairs_slowed": "slow pairs",
    "rope_with_fast_pairs_slowed": "fast pairs",
}


def label(name: str) -> str:
    """As it is called in a picture."""
    return LABELS.get(name, name)


def colour(name: str) -> str:
    """The method whose colour it has."""
    return COLOUR_OF.get(name, name)
