"""Two processes that hold half of an extended model each; forked, since importing takes longer than the work."""

import traceback
from typing import Any, NamedTuple

import torch
import torch.multiprocessing as processes
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import ropewalk as rw

from hf.models import tiny

LENGTH = 24


class Answer(NamedTuple):
    """What a process has seen."""

    rank: int
    trouble: str = ""
    loss: float = 0.0
    sharded: int = 0  # parameters of which it holds a part
    grads: Any = None  # whole again, as arrays


def batch():
    return torch.arange(4 * LENGTH).reshape(4, LENGTH) * 7 % 101


def loss_of(model, ids):
    return model(input_ids=ids, labels=ids, use_cache=False).loss


def whole(extension):
    """Loss and gradients of the model in one piece."""
    model = tiny("llama").train()
    rw.extend(model, extension)
    loss = loss_of(model, batch())
    loss.backward()
    return loss.item(), {name: value.grad for name, value in model.named_parameters()}


def half(rank, extension):
    model = tiny("llama").train()
    rw.extend(model, extension)
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    loss = loss_of(model, batch().chunk(2)[rank])
    loss.backward()
    total = loss.detach().clone()
    distributed.all_reduce(total)
    parts = sum(isinstance(value, DTensor) for value in model.parameters())
    grads = {name: value.grad.full_tensor().numpy() for name, value in model.named_parameters()}
    return Answer(rank, loss=total.item() / 2, sharded=parts, grads=grads)


def answering(rank, extension, place, told):
    try:
        distributed.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
        told.put(half(rank, extension))
        distributed.destroy_process_group()
    except BaseException:
        told.put(Answer(rank, trouble=traceback.format_exc()))


def sharded(extension, place):
    """What both processes have seen."""
    context = processes.get_context("fork")
    told = context.Queue()
    both = [context.Process(target=answering, args=(rank, extension, place, told), daemon=True) for rank in range(2)]
    for each in both:
        each.start()
    answers = sorted((told.get(timeout=120) for _ in both), key=lambda answer: answer.rank)
    for each in both:
        each.join(timeout=60)
    return answers
