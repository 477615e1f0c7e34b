"""FlexAttention by its definition, which needs no compiler."""

import math

import torch
from torch.nn.attention import flex_attention as torchs


def defined(q, k, v, *, score_mod, block_mask, enable_gqa, kernel_options, return_aux):
    """FlexAttention's definition, from the block mask's lists as well as its bounds, like its kernels."""
    group, dtype = q.shape[1] // k.shape[1], q.dtype
    q, k, v = (x if dtype == torch.float64 else x.float() for x in (q, k, v))
    b, h, i, j = torch.meshgrid(*(torch.arange(n) for n in (*q.shape[:3], k.shape[2])), indexing="ij")
    score = q @ k.repeat_interleave(group, 1).mT / math.sqrt(q.shape[-1])
    if score_mod is not None:
        score = score_mod(score, b, h, i, j)
    masked = listed(block_mask.kv_num_blocks, block_mask.kv_indices, *i.shape[2:])
    full = listed(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, *i.shape[2:])
    assert not (masked & full).any()
    score = score.masked_fill(~(masked & block_mask.mask_mod(b, h, i, j) | full), -torch.inf)
    seeing = (score > -torch.inf).any(-1, keepdim=True)
    out = score.where(seeing, 0).softmax(-1).where(seeing, 0) @ v.repeat_interleave(group, 1)
    lse = score.where(seeing, 0).logsumexp(-1).where(seeing[..., 0], -torch.inf)
    return out.to(dtype), torchs.AuxOutput(lse=lse if return_aux.lse else None)


def listed(counts, indices, rows, keys):
    """The pairs of the blocks in the lists."""
    dense = torch.zeros(rows, keys, dtype=torch.bool)
    for row, (count, columns) in enumerate(zip(counts[0, 0].tolist(), indices[0, 0].tolist(), strict=True)):
        for column in columns[:count]:
            dense[row * 128 : (row + 1) * 128, column * 128 : (column + 1) * 128] = True
    return dense
