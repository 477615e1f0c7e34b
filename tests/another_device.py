"""A device that this machine lacks, played by the CPU: its tensors do not mix with the CPU's, as on a GPU.

Only calls from Python are seen. What torch computes by itself runs on the CPU. A device is named as an object
(`torch.device`), not as text.
"""

from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

THERE = torch.device("cuda", 0)
CPU = torch.device("cpu")
# Copies, uses of a shape, and a parameter that gets other data.
MAY_DIFFER = ("to", "copy_", "cpu", "type", "type_as", "view_as", "expand_as", "reshape_as", "__deepcopy__", "__set__")


class _There(torch.Tensor):
    """A tensor on the other device."""


def there(x):
    """The tensor, on the other device."""
    return x if isinstance(x, _There) else torch.Tensor._make_subclass(_There, x, x.requires_grad)


def here(x):
    """The same numbers as an ordinary tensor."""
    return x.as_subclass(torch.Tensor) if isinstance(x, _There) else x


def move(model):
    """Every parameter and buffer of a model to the other device; returns the model."""
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            tensors.update({name: there(x.detach()) for name, x in tensors.items() if x is not None})
    return model


class _AnotherDevice(TorchFunctionMode):
    """Says where tensors are, refuses to mix them, and makes new ones where they are asked for."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.device:
            return function(*args, **kwargs)
        if function in ANSWERS:
            return ANSWERS[function](isinstance(args[0], _There))
        leaves = tree_flatten((args, kwargs))[0]
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        require_one_device(function, args, tensors)
        got = computed_here(function, args, kwargs)
        if in_place(function) and tensors:
            return args[0] if args else tensors[0]
        return (
            tree_map(lambda x: there(x) if isinstance(x, torch.Tensor) else x, got) if goes(function, leaves) else got
        )


ANSWERS = {torch.Tensor.device.__get__: lambda on: THERE if on else CPU, torch.Tensor.is_cuda.__get__: lambda on: on}


def computed_here(function, args, kwargs):
    """The same call on the CPU."""
    plain = tree_map(lambda x: CPU if isinstance(x, torch.device) else here(x), (args, kwargs))
    with torch._C.DisableTorchFunctionSubclass():
        return function(*plain[0], **plain[1])


def goes(function, leaves):
    """Whether the result is on the other device: it is asked for there, or else what it is made of is."""
    asked = next((x for x in leaves if isinstance(x, torch.device)), None)
    if asked is not None:
        return asked.type == THERE.type
    return function is not torch.Tensor.cpu and any(isinstance(x, _There) for x in leaves)


def in_place(function):
    name = getattr(function, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name == "__setitem__"


def require_one_device(function, args, tensors):
    """As torch on a GPU: a tensor without dimensions may come from the CPU, and so may an index."""
    if getattr(function, "__name__", "") in MAY_DIFFER:
        return
    if function in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and isinstance(args[0], _There):
        tensors = [x for x in (args[0], *args[2:]) if isinstance(x, torch.Tensor)]
    if len({isinstance(x, _There) for x in tensors if x.dim()}) > 1:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found two devices in {function}")


@contextmanager
def another_device():
    """Within it, `there(x)` is on a CUDA device."""
    with _AnotherDevice():
        yield
