"""What the verbs for models share: arguments, checks before a model is loaded, and loading.

Checks come in the order of their cost: the line, then the config and the tokenizer, then the weights.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli import completion
from ropewalk.errors import DoesNotFit, InvalidValue, UnknownName
from ropewalk.extension.notation import BARE, INSTEAD, growing_factors, length, read, unknown_name
from ropewalk.extension.outside_code import METHODS, offers_of
from ropewalk.hf import load_options, loading
from ropewalk.hf.load_options import AUTO, DTYPES, LoadOptions
from ropewalk.hf.loading import require_device, silence_transformers
from ropewalk.measure.progress import showing_progress
from ropewalk.methods import docstrings
from ropewalk.models import GGUF, NAME, named, path_of

if TYPE_CHECKING:
    from ropewalk.extension import extension as extensions  # importing it takes a second
    from ropewalk.extension.parsing import Line


def model_argument(about: str, **more: Any) -> Any:
    """The argument of a verb that is a model."""
    return typer.Argument(callback=path_of, autocompletion=completion.models, help=about, show_default=False, **more)


def extension_argument(about: str) -> Any:
    """The argument of a verb that is an extension, or several."""
    return typer.Argument(callback=require_known, autocompletion=completion.extensions, help=about, show_default=False)


def require_known(value: list[str] | str | None) -> list[str] | str | None:
    """A line or lines of which every name exists: by the names of files, since to read a line takes torch."""
    if not value:  # nothing need be read, nor asked of installed packages
        return value
    names = docstrings.names()
    bare = {name.rpartition(".")[2] for name in names} | offers_of(METHODS).keys()
    for line in [value] if isinstance(value, str) else value:
        if "/" in line and Path(line).is_dir():
            sentence = f"{line} is a folder, and an extension is expected here"
            raise UnknownName.because("extension", sentence, remedy="name the model first, and then the extension")
        for term in read(line) if line and line != BARE and not line.endswith(".json") else ():
            if term.name == NAME:
                sentence = f"{NAME} is a model, and an extension is expected here"
                remedy = f"name one, such as yarn, or look at the model: ropewalk inspect {NAME}"
                raise UnknownName.because("extension", sentence, remedy=remedy)
            if "." not in term.name and term.name != INSTEAD and term.name not in bare:
                raise unknown_name(term.name, [*names, *offers_of(METHODS), INSTEAD])
    return value


MODEL = "a folder, a GGUF file, a name on the hub, or default: the model that comes with Ropewalk"
Model = Annotated[str, model_argument(MODEL)]
Extension = Annotated[str, extension_argument("such as yarn or rerope:window=512+log_n")]
To = Annotated[str, typer.Option("--to", metavar="LENGTH", help="the target length, such as 32k or 1m")]
FACTORS = "choose one of these for each request: the smallest that covers its prompt and max_tokens, such as 1,2,4"
RequestFactors = Annotated[str | None, typer.Option("--request-factors", metavar="FACTORS", help=FACTORS)]
Out = Annotated[
    str,
    typer.Option(
        "--out", "-o", metavar="FOLDER", help="a new folder; by default one with a name such as model-yarn-32k"
    ),
]

DTYPE = (
    "auto (the checkpoint's; float32 where a small model is measured on a CPU, and where a model writes or is evaluated"
    " on a CPU that is far slower in bfloat16), float32, bfloat16 or float16"
)
Dtype = Annotated[str, typer.Option(autocompletion=completion.one_of(DTYPES), help=DTYPE)]
DEVICE = "such as cpu or cuda:1, or auto (all GPUs, main memory and the disk); by default a GPU where there is one"
Device = Annotated[str, typer.Option(help=DEVICE)]

Trust = Annotated[bool, typer.Option("--trust-remote-code", help="run the code that comes with a model")]

Revision = Annotated[str, typer.Option(help="revision of a model on the hub: a branch, a tag or a commit")]
TrainedLen = Annotated[
    str, typer.Option("--trained-len", metavar="LENGTH", help="the trained length, if the model's config is wrong")
]


OF_CONFIGS = {"trained_len": ("", TrainedLen), "revision": ("", Revision), "trust_remote_code": (False, Trust)}
OF_WEIGHTS = {"dtype": (AUTO, Dtype), "device": ("", Device)}


def with_load_options(verb: Callable[..., None], *, places_weights: bool = True) -> Callable[..., None]:
    """A verb with the options of all verbs that load models, which it takes as one record, `options`.

    --dtype and --device are only for those that load weights and leave their place to the caller.
    """
    signature = inspect.signature(verb, eval_str=True)

    @wraps(verb)
    def with_options(
        *,
        trained_len: str = "",
        revision: str = "",
        trust_remote_code: bool = False,
        dtype: str = AUTO,
        device: str = "",
        **kwargs: Any,
    ) -> None:
        stated_len = target(trained_len, "--trained-len")
        stated = LoadOptions(dtype or AUTO, device, revision, trust_remote_code, stated_len)
        require_device(device)
        verb(**kwargs, options=stated)

    options = OF_CONFIGS | OF_WEIGHTS if places_weights else OF_CONFIGS
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (default, kind) in options.items()
    ]
    stays = [parameter for name, parameter in signature.parameters.items() if name != "options"]
    with_options.__signature__ = signature.replace(parameters=[*stays, *added])  # type: ignore[attr-defined]
    return with_options


def load_model(model: str, options: LoadOptions) -> Any:
    """The model, under the extension saved with it; what takes more than two seconds says so."""
    with showing_progress(f"loading {named(model)}", shown="lines"):
        return loading.load_model(model, options)


def load_and_place(model: str, options: LoadOptions, *, small_in_float32: bool = False) -> Any:
    """The model where it computes; in float32 on a CPU that is far slower in the stored precision, and says so."""
    from ropewalk.hf.probe.host import format_of
    from ropewalk.measure.comparison.plan import faster_precision, in_precision

    host = loading.place_model(load_model(model, options), options, small_in_float32=small_in_float32)
    if options.dtype != AUTO or host.device.type != "cpu" or options.is_spread or format_of(host):
        return host
    stored, faster = host.dtype, faster_precision(host.dtype)
    more = sum(parameter.numel() for parameter in host.parameters()) * (faster.itemsize - stored.itemsize)
    if faster is stored or more > loading.free_bytes():
        return host
    names = [str(dtype).removeprefix("torch.") for dtype in (faster, stored)]
    said = f"computing in {names[0]}: this processor is far slower in {names[1]} (--dtype {names[1]} keeps it)"
    typer.echo(f"ropewalk: {said}", err=True)
    return in_precision(host, faster)


def folder_for(model: str, line: str, *more: str) -> str:
    """A name of a folder that says what is in it: the model, the methods of the line, and more."""
    methods = re.sub(r":[^+]*", "", re.sub(r"[^+]*?([^/\\+]+)\.py(?=[:+]|$)", r"\1", line))
    parts = (Path(named(model)).name.removesuffix(GGUF), methods, *more)
    return "-".join(re.sub(r"[^\w+.-]", "", part) for part in parts if part)


def target(to: str, field: str = "--to") -> int | None:
    """The target length of an option; None without one."""
    tokens = length(to, field) if to else None
    if tokens is not None and tokens < 1:
        raise InvalidValue(field, "at least 1", to)
    return tokens


def request_factors(text: str | None) -> tuple[float, ...]:
    """The factors of an option; none without one."""
    return () if text is None else growing_factors(text)


def require_plausible(model: str, extension: str = "") -> Line | None:
    """The line, read; at once refused are a folder that does not exist and a line with a name that does not exist."""
    load_options.require_plausible(model)
    if not extension:
        return None
    from ropewalk.extension.parsing import read_line

    return read_line(extension)


def refuse_gguf(model: str, extension: str, to: str) -> None:
    """Refuse a GGUF file where a folder with weights is to be written, before hundreds of megabytes are read."""
    if model.endswith(GGUF):
        command = shlex.join(["ropewalk", "export", model, extension, *(["--to", to] if to else [])])
        sentence = f"{model} is a GGUF file, whose weights transformers cannot write as they are"
        remedy = (
            f"{command} writes another GGUF file, if llama.cpp can run the extension; or take the folder it was made of"
        )
        raise DoesNotFit.because("model", sentence, remedy=remedy)


def parse_for_model(
    model: str, line: str | Line, to: str, options: LoadOptions, field: str = "--to", *, needed: int | None = None
) -> extensions.Extension:
    """The extension for the lengths and layers in the model's config, before its weights are loaded.

    Args:
        model: the model's place or name.
        line: the extension.
        to: the target length as it was typed; without one it is what is needed, and at least the trained length.
        options: how the model is loaded.
        field: the option that `to` comes from, for errors.
        needed: tokens that the text will have.
    """
    from ropewalk.extension.parsing import read_line
    from ropewalk.hf.attach.extend import require_beyond
    from ropewalk.hf.checkpoint.fetch import fetch_config
    from ropewalk.hf.probe.facts import lengths_of, parse_for_config

    line = read_line(line)
    silence_transformers()
    text = fetch_config(model, options).get_text_config()
    (known, original), length_asked = lengths_of(text, corrected=options.trained_len), target(to, field)
    require_beyond(field, length_asked, original if line.replaces_scaling else known)
    reached = max(known, needed) if length_asked is None and needed else length_asked
    return parse_for_config(text, line, reached, trained_len=options.trained_len)
