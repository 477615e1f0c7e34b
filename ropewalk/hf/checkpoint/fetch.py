"""Load a model's config, tokenizer or weights by transformers, by the options of whoever asks.

Code that comes with a model runs only if the caller allows it; nobody is asked on a terminal. Broken files raise many
kinds of errors in transformers; here they are one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

from huggingface_hub import constants, get_session, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMultimodalLM,
    AutoTokenizer,
    PreTrainedConfig,
)
from transformers.utils.hub import cached_file

from ropewalk.errors import InvalidValue, RopewalkError, Unreadable, is_out_of_memory, not_installed
from ropewalk.files import holds, why
from ropewalk.hf.checkpoint.closed_config import ROPE_TYPE, SENTENCE, SIDECAR, is_closed, reopen, without_warning
from ropewalk.hf.checkpoint.gguf_file import (
    bar_as_wanted,
    not_read,
    read_head,
    require_gguf,
    schedule_in,
    without_words,
)
from ropewalk.hf.load_options import AUTO, UNSTATED, LoadOptions
from ropewalk.hf.probe.facts import EXPORTED, correct
from ropewalk.hf.probe.fope import require_no_fope
from ropewalk.models import GGUF, parts_of

TRUST, GGUF_FILE = "trust_remote_code", "gguf_file"
NOTED = ("trained_len", "target_len", "methods")  # of what an export stretched
OF_HUB = ("revision", "token", "cache_dir", "local_files_only")  # keywords of how the hub and its cache are read
OF_LOADING = ("dtype", "torch_dtype", "quantization_config")  # keywords that a config has too
LOADERS = (AutoModelForCausalLM, AutoModelForMultimodalLM, AutoModelForImageTextToText)
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers")
MOST_LAYERS = 10_000  # transformers makes lists of as many items as a config states
ROPE = ("rope_parameters", "rope_scaling")
NUMBERS = (
    "rope_theta", "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow",
    "mscale", "mscale_all_dim", "low_freq_factor", "high_freq_factor", "partial_rotary_factor",
)  # fmt: skip
A_MODEL = "a causal model that transformers loads", "fetch again what is missing or incomplete"  # rule and remedy
CORRECT = "correct its config.json"
# Types that transformers has no class of, and whose makers say that another's reads them.
# Source: the deployment guide of Kimi K2, which "reuses the DeepSeekV3CausalLM architecture".
ALIKE = {"kimi_k2": "deepseek_v3"}
OWN_CODE = "transformers_modules"  # the package in which transformers stores the code that came with a model


def runs_own_code(model: nn.Module) -> bool:
    """Whether the class of a model came with it; then the caller has trusted its code."""
    return type(model).__module__.partition(".")[0] == OWN_CODE


def fetch_config(model: str | Path, options: LoadOptions = UNSTATED, **kwargs: Any) -> Any:
    """The config."""
    return _fetch(_config, model, options, kwargs, "one whose config transformers reads", CORRECT)


def _config(model: str | Path, **kwargs: Any) -> Any:
    """The config by transformers, opened where Ropewalk closed it."""
    if GGUF_FILE in kwargs:
        return _gguf_config(model, **kwargs)
    stated = PreTrainedConfig.get_config_dict(model, **kwargs)[0]
    _require_plausible(stated)
    require_no_fope(stated)  # before code that came with the model would be asked for
    if stated.get("model_type") in ALIKE and not kwargs.get(TRUST):
        return CONFIG_MAPPING[ALIKE[stated["model_type"]]].from_dict(stated)
    if not is_closed(model):
        return AutoConfig.from_pretrained(model, **kwargs)
    values = reopen(PreTrainedConfig.get_config_dict(model)[0])
    if "auto_map" not in values:
        return CONFIG_MAPPING[values["model_type"]].from_dict(values)
    config = AutoConfig.from_pretrained(model, **kwargs)  # its own code reads it
    reopen(vars(config))
    return config


def fetch_gguf(model: str, options: LoadOptions = UNSTATED) -> Path:
    """Where a GGUF file is, which is fetched where it is on the hub."""
    file: Path = _fetch(_gguf_file, model, options, {}, "a GGUF file", CORRECT)
    return file


def _gguf_file(model: str | Path, **kwargs: Any) -> Path:
    file = _local(str(model), kwargs[GGUF_FILE])
    if holds(file.is_file):
        return file
    return Path(str(cached_file(model, kwargs[GGUF_FILE], revision=kwargs.get("revision"))))


def _gguf_config(model: str | Path, **kwargs: Any) -> Any:
    """The config by transformers, from the metadata alone, with the schedule, which transformers leaves out."""
    file = _gguf_file(model, **kwargs)
    schedule, note = schedule_in(file), read_head(file).note
    with without_words(file) as folder:
        _require_plausible(PreTrainedConfig.get_config_dict(folder, gguf_file=file.name)[0])
        config = AutoConfig.from_pretrained(folder, **{**kwargs, GGUF_FILE: file.name})
    text = config.get_text_config()
    rope = text.rope_parameters
    (rope.get("full_attention", rope) if schedule else {}).update(schedule)  # llama.cpp scales no windowed layer
    if note:
        setattr(text, EXPORTED, {name: note.get(name) for name in NOTED})
    return config


def fetch_values(model: str | Path, options: LoadOptions = UNSTATED) -> dict[str, Any]:
    """The config as its file has it."""
    get = PreTrainedConfig.get_config_dict
    values: dict[str, Any]
    values, _ = _fetch(get, model, options, {}, "one whose config transformers reads", CORRECT)
    return values


def _require_plausible(values: Any, *, in_rope: bool = False) -> None:
    """Refuse numbers of layers that no model has, before lists of as many are made, and texts in place of numbers."""
    for name, value in values.items():
        if in_rope and name in NUMBERS and not isinstance(value, int | float | None):
            raise Unreadable("config", f"one whose {name} of the rotation is a number", value, remedy=CORRECT)
        if name in LAYERS and isinstance(value, int | float) and value > MOST_LAYERS:
            raise Unreadable("config", f"one with at most {MOST_LAYERS:,} layers", f"{name} {value:,}", remedy=CORRECT)
        if isinstance(value, dict):
            _require_plausible(value, in_rope=in_rope or name in ROPE)


def fetch_tokenizer(model: str | Path, options: LoadOptions = UNSTATED, **kwargs: Any) -> Any:
    """The tokenizer."""
    rule, remedy = "one with a tokenizer beside its weights", "put its files there; save_pretrained writes them"
    return _fetch(_tokenizer, model, options, kwargs, rule, remedy)


def _tokenizer(model: str | Path, **kwargs: Any) -> Any:
    """The tokenizer by transformers. Phi-3's config refuses a type that it does not know, before there is one."""
    if is_closed(model):
        kwargs.setdefault("config", _config(model, **{TRUST: kwargs[TRUST]}))
    return AutoTokenizer.from_pretrained(model, **kwargs)


def fetch_folder(model: str, options: LoadOptions = UNSTATED, **kwargs: Any) -> Path | None:
    """Where a model lies after it was fetched from the hub with the extension beside it; None for every other model."""
    if holds(Path(model).exists) or parts_of(model)[1]:
        return None
    asked = {name: kwargs[name] for name in OF_HUB if name in kwargs}
    folder: Path | None = _fetch(_folder, model, options, asked, *A_MODEL)
    return folder


def _folder(model: str, **kwargs: Any) -> Path | None:
    kwargs.pop(TRUST)
    without = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    if cached_file(model, SIDECAR, **kwargs, **without) is None:
        return None
    return Path(snapshot_download(model, **kwargs))


def loader_of(config: Any, class_name: str | None = None) -> Any:
    """The Auto class of transformers that loads a model class, by default the one that the config names; one for the
    config's type where no class is named."""
    named = class_name or next(iter(getattr(config, "architectures", None) or []), None)
    of_type = {loader: loadable(loader, config) for loader in LOADERS}
    by_name = (loader for loader, names in of_type.items() if named in names)
    return next(by_name, next((loader for loader, names in of_type.items() if names), AutoModelForCausalLM))


def loadable(loader: Any, config: Any) -> list[str]:
    """The names of the classes that an Auto class loads for a config of this type."""
    classes = loader._model_mapping.get(type(config), None)
    classes = classes if isinstance(classes, list | tuple) else [classes]
    return [model_class.__name__ for model_class in classes if model_class is not None]


def fetch_model(model: str | Path, options: LoadOptions = UNSTATED, **kwargs: Any) -> Any:
    """The language model, with what `kwargs` ask for besides, and instead where both say it.

    A stated trained length is stored on the model.
    """
    _require_weights(Path(model))
    if (is_closed(model) or parts_of(str(model))[1]) and kwargs.get("config") is None:
        config = fetch_config(model, options, **{TRUST: kwargs.get(TRUST)})
        stated = [name for name in kwargs if hasattr(config, name) and name not in OF_LOADING]
        for name in stated:  # as transformers does, which takes them for the model's own where a config is passed
            setattr(config, name, kwargs.pop(name))
        kwargs["config"] = config
    loader = _loader(model, options, kwargs)
    placed = {"dtype": options.dtype} if options.dtype != AUTO else {}
    placed |= {"device_map": AUTO} if options.is_spread else {}
    fetched = _fetch(loader.from_pretrained, model, options, {**placed, **kwargs}, *A_MODEL)
    if options.trained_len is not None:
        correct(fetched[0] if isinstance(fetched, tuple) else fetched, options.trained_len)
    return fetched


def _require_weights(place: Path) -> None:
    """Refuse a folder whose weights are in a GGUF file alone: which one of several is not to be guessed."""
    files = [*place.iterdir()] if holds(place.is_dir) else []
    whole = [file for file in files if file.suffix == GGUF]
    if whole and not any(file.suffix in (".safetensors", ".bin") for file in files):
        sentence = f"{place} holds its weights in a GGUF file"
        raise Unreadable.because("model", sentence, remedy=f"pass {whole[0]}")


def _loader(model: str | Path, options: LoadOptions, kwargs: dict[str, Any]) -> Any:
    """The class for a model; where its config cannot be read, loading it says why."""
    known = kwargs.get("config")
    try:
        return loader_of(fetch_config(model, options, **{TRUST: kwargs.get(TRUST)}) if known is None else known)
    except RopewalkError as refused:
        if refused.field == "config":  # loading it would not say so, but try
            raise
        return AutoModelForCausalLM


def fetch_adapter(base: nn.Module, place: Path, values: dict[str, Any]) -> Any:
    """The adapter of a folder on its base model, by peft; `values` are those of its config."""
    try:
        import peft

        config: Any = peft.PeftConfig
        return peft.PeftModel.from_pretrained(base, place, config=config.from_peft_type(**values))
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing
    except Exception as reason:
        if is_out_of_memory(reason):
            raise
        detail = f"{type(reason).__name__}: {why(reason)}; fetch it again"
        raise Unreadable("adapter", "one that peft loads", str(place), remedy=detail) from reason


def _fetch(
    how: Callable[..., Any], model: str | Path, options: LoadOptions, kwargs: dict[str, Any], rule: str, remedy: str
) -> Any:
    at, silent = _revision(model, options), why_silent(model)
    trust = options.trust_remote_code if kwargs.get(TRUST) is None else kwargs[TRUST]
    place, gguf = parts_of(str(model))
    try:
        if gguf:
            require_gguf(Path(place) / gguf)
            kwargs = {**kwargs, GGUF_FILE: gguf}
        with without_warning(), cache_only(silent), bar_as_wanted() if gguf else nullcontext():
            fetched = how(place if gguf else model, **{**at, **kwargs, TRUST: trust})
        if gguf:
            if not holds((Path(place) / gguf).is_file):  # it came from the hub, and is there now
                require_gguf(_local(place, gguf))
            named_as(fetched, str(model))
        return fetched
    except (RopewalkError, MemoryError):
        raise
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing
    except Exception as reason:
        if is_out_of_memory(reason):
            raise
        if silent and is_missing(reason):
            raise not_cached(model, silent) from reason
        if gguf:
            raise not_read(str(model), reason) from reason
        if TRUST in str(reason):
            remedy = f"read the code that comes with it, then pass {TRUST}=True, or --trust-remote-code"
        if SENTENCE in str(reason):
            folder = fetch_folder(str(model), options, **kwargs)
            if folder is not None:
                return _fetch(how, folder, replace(options, revision=""), {**kwargs, "revision": None}, rule, remedy)
            remedy = "load it by ropewalk.load"
        if isinstance(reason, KeyError) and reason.args == (ROPE_TYPE,):
            sentence = f"{model} was written for vLLM with Ropewalk's plugin, and transformers cannot compute it"
            remedy = "load the model that it was made of, and extend that"
            raise Unreadable.because("model", sentence, remedy=remedy) from reason
        detail = f"{type(reason).__name__}: {why(reason)}; {remedy}"
        raise Unreadable("model", rule, str(model), remedy=detail) from reason


def _revision(model: str | Path, options: LoadOptions) -> dict[str, str]:
    """What transformers is told of it; refused for a folder, which has no revisions."""
    revision = options.revision
    if revision and Path(model).is_dir():
        sentence = f"a revision ({revision}) is for a model on the hub, and {model} is a folder"
        raise InvalidValue.because("--revision", sentence, remedy="leave --revision out")
    return {"revision": revision} if revision else {}


def _local(place: str, gguf: str) -> Path:
    """Where a GGUF file is, in its folder or in the cache of the hub."""
    file = Path(place) / gguf
    return file if holds(file.is_file) else Path(str(try_to_load_from_cache(place, gguf)))


def named_as(fetched: Any, name: str) -> None:
    """What was read from a GGUF file, or from the cache of the hub, has the name that was asked for, not a folder's."""
    for one in fetched if isinstance(fetched, tuple) else (fetched,):
        for part in (one, getattr(one, "config", None)):
            if part is not None and hasattr(part, "name_or_path"):
                part.name_or_path = name


# Whether the hub answers, asked once and shortly before anything is fetched from it.
#
# huggingface_hub asks six times for every file, with pauses in between: a minute or two where there is no network. So
# it is told to look only into its cache where the hub does not answer one short question.


HUB_TIMEOUT = 2.5  # seconds
LONGER = "HF_HUB_ETAG_TIMEOUT"  # huggingface_hub's own variable for how long it waits for such an answer
GATEWAYS = (502, 503, 504)  # what a proxy answers where it cannot reach the hub
NOT_CACHED = (LocalEntryNotFoundError, OfflineModeIsEnabled)
NO_FILE = "does not appear to have a file named"  # transformers says of weights that are not in the cache
ANSWER_SECONDS = 60.0  # for which an answer holds: a config, a tokenizer and weights are fetched one after the other

_KNOWN: dict[str, tuple[float, str]] = {}  # when it was asked, and why it did not answer


def why_silent(model: str | Path) -> str:
    """Why the hub cannot be asked for a model; empty where it answers, and for a folder, which needs no hub."""
    if holds(Path(model).exists):
        return ""
    if constants.is_offline_mode():
        return "HF_HUB_OFFLINE is set"
    asked, reason = _KNOWN.get(constants.ENDPOINT, (0.0, ""))
    if not asked or monotonic() - asked > ANSWER_SECONDS:
        reason = _ask(constants.ENDPOINT)
        _KNOWN[constants.ENDPOINT] = monotonic(), reason
    return f"there is no network, or {constants.ENDPOINT} does not answer ({reason})" if reason else ""


@contextmanager
def cache_only(silent: str) -> Iterator[None]:
    """Have everything be read from the cache while the hub is silent.

    By huggingface_hub's own switch: transformers does not pass `local_files_only` on to all that it fetches.
    """
    before = constants.HF_HUB_OFFLINE
    try:
        constants.HF_HUB_OFFLINE = before or bool(silent)
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def not_cached(model: str | Path, silent: str) -> Unreadable:
    """The error of a model that is neither in the cache nor to be fetched. The next try asks the hub again."""
    _KNOWN.pop(constants.ENDPOINT, None)
    again = f"try again when it answers ({LONGER}=30 waits longer)"
    remedy = f"pass a folder or a GGUF file, or {'unset it' if constants.is_offline_mode() else again}"
    sentence = f"{silent}, and {model} is not in the cache at {constants.HF_HUB_CACHE}, or only in part"
    return Unreadable.because("model", sentence, remedy=remedy)


def is_missing(reason: BaseException) -> bool:
    """Whether the error, or one that led to it, says that a file is not in the cache."""
    return any(isinstance(error, NOT_CACHED) or NO_FILE in str(error) for error in _chain(reason))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _ask(endpoint: str) -> str:
    """Why it did not answer; empty where it did, whatever it said.

    In a thread, since no time limit reaches a name server that does not answer.
    """
    said: list[str] = []
    patience = HUB_TIMEOUT
    with suppress(ValueError):
        patience = float(os.environ.get(LONGER, HUB_TIMEOUT))

    def ask() -> None:
        try:
            status = get_session().head(endpoint, timeout=patience, follow_redirects=False).status_code
            said.append(f"HTTP status {status}" if status in GATEWAYS else "")
        except Exception as reason:  # of the network, of certificates, of a proxy, of an address that is none
            said.append(why(reason))

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(patience)
    return said[0] if said else f"it said nothing in {patience:g} s"
