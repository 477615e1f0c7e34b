"""Upload a model to the hub as `rw.save` writes it, with a card that says what it is and what was measured."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import huggingface_hub
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, ModelInfo, constants
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
from torch import nn

from ropewalk.errors import InvalidValue, RopewalkError, is_out_of_memory
from ropewalk.extension.outside import files_in
from ropewalk.extension.parsing import notation_of
from ropewalk.files import holds, why
from ropewalk.folders import write_text
from ropewalk.hf.attach.handle import Handle, host_of
from ropewalk.hf.checkpoint.closed_config import ADAPTER, FILE, SIDECAR
from ropewalk.hf.checkpoint.fetch import runs_own_code, why_silent
from ropewalk.hf.checkpoint.sidecar import LEARNED
from ropewalk.hf.use.save import BASE, ONLY, is_adapted, required_handle, save
from ropewalk.models import DEFAULT, NAME

CARD = "README.md"
ON_HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
FOLDER = re.compile(r"[^+=,(\[]*/(?=[^/]*\.py\b)")  # of a method's file, which is that of whoever uploads
LICENCE = ("license", "license_name", "license_link")  # of a card's metadata
# What an earlier upload may have left, and what would be read in place of, or beside, the files of this one.
EARLIER = re.compile(r"(model|pytorch_model|adapter_model)(-\d+-of-\d+)?\.(safetensors|bin)(\.index\.json)?")
REMEDIES = {
    401: "use a token that the hub knows: hf auth login, HF_TOKEN or token=",
    403: "use a token that may write there, or choose a name of your own",
    409: "choose another name",
    412: "somebody else changed the repository meanwhile; try again",
}


def push_to_hub(
    model: nn.Module,
    name: str,
    *,
    tokenizer: Any | None = None,
    target_len: int | None = None,
    comparison: Any | None = None,
    base_model: str = "",
    private: bool | None = None,
    token: str | None = None,
    force: bool = False,
    folder: str | Path | None = None,
) -> str:
    """Upload an extended model to the Hugging Face hub with a model card, and return its address.

        rw.extend(model, "yarn:factor=4")
        print(rw.push_to_hub(model, "owner/name", tokenizer=tokenizer))

    `rw.save` writes and verifies the files in a temporary folder, and one commit uploads them all. `rw.load` loads
    them by that name.

    Args:
        model: under an extension, or with an adapter of peft on it.
        name: of the repository, which is made if it is not there: owner/name.
        tokenizer: uploaded with the weights.
        target_len: in tokens; it is written into the config.
        comparison: a result of `rw.compare` on this model; its figures go into the card.
        base_model: the name on the hub of the model that was extended, where that was loaded from a folder.
        private: whether a new repository is private; by default as the owner's settings have it.
        token: of the hub; by default that of `hf auth login`, or HF_TOKEN.
        force: replace a README.md that the repository has.
        folder: write into it what would be uploaded, to be read first; nothing is sent, and its path is returned. The
            licence of a base model on the hub is not asked for.
    """
    _require_name(name)
    _require_name(base_model or name)
    handle = required_handle(host_of(model))
    figures = _figures(comparison, handle) if comparison is not None else []
    base = _base_on_hub(model, handle)
    base = base_model or base

    def write(place: Path, licence: dict[str, str]) -> None:
        how = save(model, place, target_len=target_len, tokenizer=tokenizer)
        target = target_len or handle.target_len or _reached(handle)
        head = {"base_model": base, "library_name": "peft" if is_adapted(model) else "transformers", **licence}
        write_text(place / CARD, _card(name, handle, target, head, how, figures))

    if folder is not None:
        write(Path(folder), {} if base else _licence(None, base, handle.model.name_or_path or ""))
        return str(folder)
    token = token or huggingface_hub.get_token()
    if not token:
        sentence = f"{constants.ENDPOINT} takes uploads with a token only, and there is none"
        raise InvalidValue.because("token", sentence, remedy="hf auth login, set HF_TOKEN, or pass token=")
    if silent := why_silent(name):
        remedy = "folder=PATH writes what would be uploaded, for later"
        raise InvalidValue.because("name", f"{silent}, so that {name} cannot be uploaded", remedy=remedy)
    hub = HfApi(token=token)
    with _in_one_line(name):
        there = _repository(hub, name, private, force=force)
        licence = _licence(hub, base, handle.model.name_or_path or "")
    with TemporaryDirectory(prefix="ropewalk-") as temporary:
        place = Path(temporary, "model")
        write(place, licence)
        with _in_one_line(name):
            if there is None:
                hub.create_repo(name, private=private)
            _commit(hub, name, place, there)
    return f"{constants.ENDPOINT}/{name}"


# What the hub has, and what it is sent.


def _require_name(name: str) -> None:
    if not isinstance(name, str) or not ON_HUB.fullmatch(name):
        raise InvalidValue("name", "that of a repository on the hub: owner/name", name)


@contextmanager
def _in_one_line(name: str) -> Iterator[None]:
    """Report whatever the hub, or the way to it, refuses."""
    try:
        yield
    except (RopewalkError, MemoryError):
        raise
    except Exception as reason:
        if is_out_of_memory(reason):
            raise
        # huggingface_hub raises an error that says which file it was uploading, from one that says why that failed.
        first = reason if isinstance(reason, HfHubHTTPError) else reason.__cause__ or reason
        status = getattr(getattr(first, "response", None), "status_code", None)
        said = getattr(first, "server_message", None) or why(first)
        sentence = f"{name} was not uploaded: {f'HTTP status {status}: ' if status else ''}{' '.join(said.split())}"
        remedy = REMEDIES.get(status or 0, "try again")
        raise InvalidValue.because("name", sentence, remedy=remedy) from reason


def _repository(hub: HfApi, name: str, private: bool | None, *, force: bool) -> ModelInfo | None:
    """The repository, if it is there and may be written into as it is asked."""
    try:
        there = hub.model_info(name)
    except GatedRepoError:  # one that is there
        raise
    except RepositoryNotFoundError:
        return None
    if private is not None and there.private is not None and private != there.private:
        sentence = f"{name} is {'private' if there.private else 'public'} already, and private={private} was asked for"
        raise InvalidValue.because("private", sentence, remedy="leave it out, or change it in the settings on the hub")
    if CARD in _files(there) and not force:
        sentence = f"{name} has a {CARD}, which the new card would replace"
        raise InvalidValue.because("name", sentence, remedy="replace it by force=True, or choose another name")
    return there


def _files(there: ModelInfo) -> list[str]:
    return [file.rfilename for file in there.siblings or []]


def _commit(hub: HfApi, name: str, place: Path, there: ModelInfo | None) -> None:
    """All files in one commit, which removes those of an earlier upload that would be read beside them."""
    new = {file.relative_to(place).as_posix(): file for file in sorted(place.rglob("*")) if file.is_file()}
    old = [file for file in (_files(there) if there else []) if file not in new and _is_earlier(file)]
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        *(CommitOperationDelete(path_in_repo=file) for file in old),
        *(CommitOperationAdd(path_in_repo=file, path_or_fileobj=path) for file, path in new.items()),
    ]
    message, before = "Upload a model with its extension by ropewalk.push_to_hub", there.sha if there else None
    hub.create_commit(name, [*operations], commit_message=message, parent_commit=before)


def _is_earlier(file: str) -> bool:
    return file in (FILE, SIDECAR, LEARNED, ADAPTER) or EARLIER.fullmatch(file) is not None


# The card.


def _base_on_hub(model: Any, handle: Handle) -> str:
    """The name on the hub of the model that was extended; empty where it came from a folder."""
    stated = getattr(model.peft_config.get(ONLY), BASE, None) if is_adapted(model) else handle.model.name_or_path
    if not isinstance(stated, str) or (ON_HUB.fullmatch(stated) and not holds(Path(stated).exists)):
        return str(stated or "")
    if is_adapted(model):  # whoever loads the adapter loads its base model by that name
        sentence = f"the adapter is of a model in a folder of this machine, {stated}"
        remedy = f"set peft_config[{ONLY!r}].{BASE} to the model's name on the hub"
        raise InvalidValue.because("model", sentence, remedy=remedy)
    return ""


def _licence(hub: HfApi | None, base: str, folder: str) -> dict[str, str]:
    """The licence that the card of the base model states, on the hub or in its folder; nothing where none does."""
    stated: Any = None
    with suppress(Exception):  # a card that is not there, not to be read, or no YAML: its licence is not known then
        stated = hub.model_info(base).card_data if hub and base else huggingface_hub.metadata_load(Path(folder) / CARD)
    values = stated.to_dict() if hasattr(stated, "to_dict") else stated or {}
    return {key: str(values[key]) for key in LICENCE if values.get(key)}


def _card(name: str, handle: Handle, target: int | None, head: dict[str, str], how: str, figures: Sequence[str]) -> str:
    """The model card."""
    front = [f"{key}: {json.dumps(value)}" for key, value in head.items() if value]
    is_default = Path(handle.model.name_or_path or "") == DEFAULT
    unnamed = f"`{NAME}`, the small model that comes with Ropewalk" if is_default else "not stated by who uploaded it"
    base = f"`{head['base_model']}`" if head["base_model"] else unnamed
    licence = head.get("license_name") or head.get("license") or "not known here; see the base model's"
    line, length = _line(handle), f"{target:,} tokens" if target else "not stated"
    parts = [
        "\n".join(["---", *front, "tags:", "- ropewalk", "- long-context", "---"]),
        f"# {name.partition('/')[2]}",
        "A model with an extension by Ropewalk, for texts longer than those that it was trained on.",
        f"- Base model: {base}\n"
        f"- Extension: {f'`{line}`' if line else 'the JSON below'}\n"
        f"- Trained length: {handle.facts.trained_len:,} tokens\n"
        f"- Target length: {length}\n"
        f"- Licence: {licence}",
        *([] if line else [_code(json.dumps(handle.extension.to_json(), indent=1), "json")]),
        "## Load it",
        *_loading(name, how, any(files_in(handle.extension.to_json())) or runs_own_code(handle.model)),
        "## What was measured",
        *(figures or [_unmeasured(head["base_model"], line, target)]),
    ]
    return "\n\n".join(parts) + "\n"


def _reached(handle: Handle) -> int | None:
    """The length that a schedule's factor reaches; None where the extension names none."""
    stretch = handle.extension.frequencies_or_rope.stretch
    return int(stretch * handle.facts.trained_len) if 1 < stretch < math.inf else None


def _line(handle: Handle) -> str:
    """The extension in a line; empty where no line says it: where layers or heads differ."""
    return FOLDER.sub("./", notation_of(handle.extension))


def _loading(name: str, how: str, has_code: bool) -> Sequence[str]:
    """By Ropewalk; by transformers and engines where the config says all."""
    trusted = ", trust_remote_code=True" if has_code else ""
    loading = _code(f"import ropewalk as rw\n\nmodel = rw.load({name!r}{trusted})", "python")
    loader, _, reason = how.partition(": ")
    if not loader.startswith("transformers."):
        return [
            loading,
            f"Only Ropewalk loads it: {reason}. Other programs stop at its config with a sentence that says so."
            " `ropewalk export` says whether vLLM can run the extension, and writes the base model under it for that.",
        ]
    auto = loader.split(".")[1]
    plain = f"from transformers import {auto}\n\nmodel = {auto}.from_pretrained({name!r})"
    words = "The schedule stands in `config.json`, so transformers computes it without Ropewalk:"
    checked = f"`ropewalk check {name} --engine vllm` says whether vLLM, or another engine, computes it too."
    return [loading, words, _code(plain, "python"), checked]


def _figures(measured: Any, handle: Handle) -> Sequence[str]:
    """The table, on which texts, by which versions and which command."""
    all_of = measured.to_dict() if hasattr(measured, "to_markdown") else {}
    if "candidates" not in all_of:
        raise InvalidValue("comparison", "a result of rw.compare", type(measured).__name__)
    made, mine = all_of["made"], handle.extension.to_json()
    rows = [one["line"] for one in all_of["candidates"] if one["extension"] == mine]
    row = f"The row of this extension is `{rows[0]}`." if rows else "None of these rows has exactly this extension."
    versions = ", ".join(f"{package} {number}" for package, number in made["versions"].items())
    texts = " ".join(f"`{mark}`" for mark in made["texts"])
    told = [f"- Model: `{made['model']}`", f"- Texts, by their hashes: {texts}", f"- Versions: {versions}"]
    told.append(f"- When and where: {made['when']}, Python {made['python']}, {made['machine']}")
    return [measured.to_markdown(), row, "\n".join(told), _code(all_of["command"], "bash")]


def _unmeasured(base: str, line: str, target: int | None) -> str:
    to = f" --to {target}" if target else ""
    command = _code(f"ropewalk compare {base or 'MODEL'} {line or 'extension.json'}{to}", "bash")
    return f"Nothing was measured for this card. This command measures the extension on held-out texts:\n\n{command}"


def _code(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"
