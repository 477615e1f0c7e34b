"""Tokens, extensions and chunks that extended models are tested with."""

import itertools

import torch

CARRIED = [
    *("llama", "qwen2", "qwen3", "mistral", "mixtral", "gemma2", "gemma3_text", "phi3", "olmo2", "gpt_neox"),
    *("granite", "glm4", "cohere2", "smollm3", "starcoder2", "gpt_oss", "deepseek_v3", "stablelm", "phi", "ministral3"),
    "nanochat",
    "llama4_text",
    "deepseek_v2",
]

EXTENSIONS = [
    *("yarn:factor=4", "dynamic_yarn", "dynamic_ntk", "rerope:window=8+log_n", "self_extend:window=8,group=4"),
    *("streaming:window=10,n_sink=2", "lm_infinite:window=10,n_sink=2", "window:window=9", "xpos"),
    *(
        "dual_chunk:chunk=16,local=4",
        "string:shift=10,local=4+log_n",
        "self_logistic:window=8,capacity=5,rate=0.3",
        "lampe:head=6,tail=3,length=60,mapped=20",
        "biases.alibi",
        "biases.kerple_log+window:window=20",
        "leaky_rerope:window=8,leak=4",
    ),
]

LENGTH, PADDED = 60, 7

IDS = torch.randint(3, 97, (2, LENGTH), generator=torch.Generator().manual_seed(3))

MASK = torch.ones_like(IDS)
MASK[0, :PADDED] = 0

CUTS = {"token by token": [1] * LENGTH, "a prompt, then tokens": [30] + [1] * 30, "pieces": [25, 1, 33, 1]}

CLOSE = 1e-4  # of the largest logit: float32 through four layers, sums in another order


def in_pieces(model, cuts, cache=None, ids=IDS, mask=MASK):
    """The logits of all pieces, read on through a cache."""
    parts, edges = [], [0, *itertools.accumulate(cuts)]
    for first, stop in itertools.pairwise(edges):
        with torch.no_grad():
            given = {"attention_mask": mask[:, :stop], "past_key_values": cache, "use_cache": True}
            answer = model(input_ids=ids[:, first:stop], **given)
        cache = answer.past_key_values
        parts.append(answer.logits)
    return torch.cat(parts, 1), cache


def error(got, expected):
    """Over real tokens, of the largest logit."""
    real = MASK.bool()
    return float((got - expected)[real].abs().max() / expected[real].abs().max())
