"""Self-distillation between two views: a text is read once more under numbers that jump, and should say the same.

    loss = CE + weight * mean over n of KL( p(. | 0..n, jumped) || p(. | 0..n) ),   no gradient through the second p

Both views have the same tokens, and each token sees the same others in both; only the numbers differ, as PoSE draws
them: from some token on they are larger by a constant. Tokens before that are the same in both views, and add 0.

Source: Li et al. 2026 (RoPE-perturbed self-distillation), arXiv:2604.14339, sec. 2: a jump before the suffix of a text,
and the KL that begins with the student.

Deviation: the mean is over all tokens with a label, there over the suffix; and the jump is PoSE's. The paper's own
range and weight were not at hand.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.hf.attach.handle import handle_of, host_of
from ropewalk.hf.probe.rotation import rotary_modules
from ropewalk.hf.runtime.forward_pass import DOCUMENTS
from ropewalk.hf.runtime.layer import NAME
from ropewalk.methods.positions import Positions
from ropewalk.train.data.numbering import Collator, number_texts, texts_of
from ropewalk.train.data.packs import IGNORED

OF_NO_TEXT = -1  # in place of the text that a token belongs to
OF_LOSS = ("labels", "num_items_in_batch", "shift_labels")  # of a call, what the second view is not asked


@contextmanager
def second_view(model: nn.Module, positions: Positions, *, weight: float) -> Iterator[None]:
    """Inside the block, the loss of a model in training has the divergence of its second view; weight 0 adds nothing.

        with second_view(model, PoSE(target_len=2048), weight=0.1):
            trainer.train()  # transformers' own; TRL's SFTTrainer takes no loss from the model, and is refused

    The numbers are drawn from torch's generator on the CPU, whose state Trainer keeps in its checkpoints.

    Args:
        model: is called with labels, and with position_ids where texts are packed; it may have adapters.
        positions: numbers the second view.
        weight: of the divergence.
    """
    if weight < 0:
        raise InvalidValue("weight", "at least 0", weight)
    if weight == 0:
        yield
        return
    host: Any = host_of(model)
    rotary_modules(host)  # or there is nothing to jump
    handle = handle_of(host)
    if handle is not None and handle.extension.positions is not None:
        name = handle.extension.positions.name
        raise Conflict.because("positions", f"{name} numbers the first view already", remedy="extend without positions")
    before = {"forward": host.__dict__["forward"]} if "forward" in host.__dict__ else {}
    done: list[None] = []
    reading = host.__dict__["forward"] = _reading(host, positions, weight, done)
    try:
        yield
        if getattr(host.forward, "__func__", None) is not reading.__func__ and not done:
            sentence = "the model's forward was replaced inside the block, and no second view was read"
            raise Conflict.because("model", sentence, remedy="make the trainer before the block; not TRL's")
    finally:
        host.__dict__.pop("forward", None)
        host.__dict__.update(before)


def _reading(host: Any, positions: Positions, weight: float, done: list[None]) -> MethodType:
    """The forward of a model, with the divergence in the loss of a call that trains; `done` grows with each.

    It is the instance's own, and no hook, since adapters do not call hooks of the model inside. It is a method, since
    accelerate makes one of what it unwraps.
    """
    theirs = host.forward
    signature = inspect.signature(theirs)

    def forward(_: Any, *args: Any, **kwargs: Any) -> Any:
        output, labels = theirs(*args, **kwargs), kwargs.get("labels")
        if not host.training or labels is None:
            return output
        logits = getattr(output, "logits", None)
        if args or logits is None or logits.shape[:2] != labels.shape:
            sentence = "a second view needs named inputs and the logits of all tokens"
            raise DoesNotFit.because("model", sentence, remedy="train without fused and chunked losses, so not by TRL")
        jumped = theirs(**_jumped(host, positions, kwargs), use_cache=False).logits
        counted, total = labels[:, 1:] != IGNORED, kwargs.get("num_items_in_batch")
        divergence = kl(jumped[:, :-1][counted], logits[:, :-1][counted].detach())
        output.loss = output.loss + weight * divergence / (counted.sum().clamp(min=1) if total is None else total)
        done.append(None)
        return output

    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    stated: Any = forward  # Trainer reads what it takes
    stated.__signature__ = signature.replace(parameters=[first, *signature.parameters.values()])
    return MethodType(forward, host)


def kl(student: Tensor, teacher: Tensor) -> Tensor:
    """The sum over rows of logits of KL(student || teacher), in float32 at least."""
    wide = torch.promote_types(student.dtype, torch.float32)
    log_student, log_teacher = (logits.to(wide).log_softmax(-1) for logits in (student, teacher))
    return (log_student.exp() * (log_student - log_teacher)).sum()


def _jumped(host: Any, positions: Positions, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The inputs of the second view: other numbers, and what keeps each token's view of the others as it was."""
    tokens = kwargs["labels"]
    numbers = kwargs.get("position_ids")
    documents = torch.zeros_like(tokens) if numbers is None else texts_of(numbers).expand_as(tokens)
    mask = kwargs.get("attention_mask")
    if mask is not None and mask.dim() == 2:
        documents = documents.masked_fill(mask == 0, OF_NO_TEXT)
    drawn = number_texts(documents.cpu(), positions, torch.default_generator).to(tokens.device)
    inputs = {name: value for name, value in kwargs.items() if name not in (*OF_LOSS, "use_cache")}
    inputs["position_ids"] = drawn
    if host.config.get_text_config()._attn_implementation == NAME:
        inputs[DOCUMENTS] = documents
    elif mask is None:
        inputs["attention_mask"] = Collator(host).mask(documents)
    return inputs
