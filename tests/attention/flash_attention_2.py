"""torch's cuda operators in plain torch, as the sources of torch 2.13 describe them, with their requirements.

Layout [batch, tokens, heads, dim]; heads of a multiple of eight numbers, read sixteen bytes at a time; causal and
window count from the last row and the last key; natural logarithm, plus infinity in a row that sees nothing.
"""

import torch


def forward(
    query,
    key,
    value,
    cum_seq_q,
    cum_seq_k,
    max_q,
    max_k,
    dropout_p,
    is_causal,
    return_debug_mask,
    *,
    scale=None,
    window_size_left=None,
    window_size_right=None,
):
    demand_layout(query, key, value)
    assert (cum_seq_q, cum_seq_k, dropout_p, return_debug_mask) == (None, None, 0.0, False)
    assert (max_q, max_k) == (query.shape[1], key.shape[1])
    logit = logits(query, key, is_causal, scale, window_size_left, window_size_right)
    seeing = (logit > -torch.inf).any(-1)
    lse = logit.logsumexp(-1).masked_fill(~seeing, torch.inf)
    weight = logit.softmax(-1).masked_fill(~seeing[..., None], 0)
    out = torch.einsum("bhij,bjhd->bihd", weight, repeated(value, query)).to(query.dtype)
    nothing = torch.zeros(0)
    return out, lse, nothing, nothing, nothing


def backward(
    grad_out,
    query,
    key,
    value,
    out,
    logsumexp,
    cum_seq_q,
    cum_seq_k,
    max_q,
    max_k,
    dropout_p,
    is_causal,
    rng_state,
    unused,
    *,
    scale=None,
    window_size_left=None,
    window_size_right=None,
):
    demand_layout(query, key, value)
    demand_layout(grad_out, out)
    assert logsumexp.is_contiguous()
    assert logsumexp.shape == (query.shape[0], query.shape[2], query.shape[1])
    assert (cum_seq_q, cum_seq_k, dropout_p) == (None, None, 0.0)
    assert (max_q, max_k) == (query.shape[1], key.shape[1])
    assert (rng_state.dtype, rng_state.shape) == (torch.uint64, (2,))
    assert not unused.numel()
    logit = logits(query, key, is_causal, scale, window_size_left, window_size_right)
    weight = (logit - logsumexp[..., None]).exp()
    grad, many_k, many_v = grad_out.to(weight), repeated(key, query), repeated(value, query)
    sums = torch.einsum("bihd,bihd->bhi", grad, out.to(weight))[..., None]
    by_logit = weight * (torch.einsum("bihd,bjhd->bhij", grad, many_v) - sums) * scale
    by_query = torch.einsum("bhij,bjhd->bihd", by_logit, many_k)
    by_key = torch.einsum("bhij,bihd->bjhd", by_logit, query.to(weight))
    by_value = torch.einsum("bhij,bihd->bjhd", weight, grad)
    group = (key.shape[2], -1)
    by_key, by_value = (x.unflatten(2, group).sum(3) for x in (by_key, by_value))
    return by_query.to(query.dtype), by_key.to(key.dtype), by_value.to(value.dtype)


def logits(query, key, is_causal, scale, left, right):
    rows, keys = query.shape[1], key.shape[1]
    left, right = (-1 if bound is None or bound >= keys else bound for bound in (left, right))
    if is_causal:
        right = 0
    logit = torch.einsum("bihd,bjhd->bhij", wide(query), repeated(key, query)) * scale
    ahead = torch.arange(keys) - (torch.arange(rows)[:, None] + keys - rows)
    hidden = ((ahead > right) & (right >= 0)) | ((-ahead > left) & (left >= 0))
    return logit.masked_fill(hidden, -torch.inf)


def repeated(x, query):
    assert query.shape[2] % x.shape[2] == 0
    return wide(x).repeat_interleave(query.shape[2] // x.shape[2], 2)


def wide(x):
    return x if x.dtype == torch.float64 else x.float()


def demand_layout(*tensors):
    for x in tensors:
        assert x.dim() == 4
        assert x.shape[-1] % 8 == 0
        assert x.shape[-1] <= 256
        assert x.stride(-1) == 1
        assert x.data_ptr() % (8 * x.element_size()) == 0
        assert all(step % 8 == 0 for step, size in zip(x.stride()[:-1], x.shape[:-1], strict=True) if size > 1)
