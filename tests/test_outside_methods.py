"""A schedule, a reach and a bias that learns, of somebody else: kept, loaded, trained, compared, carried to vLLM."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from extension.outsiders import OF_THREE, THREE, installed, method_file

import ropewalk as rw
from ropewalk.hf.attach.handle import handle_of
from ropewalk.methods.facts import MODEL
from ropewalk.testing import check_attention, check_cache, check_method
from ropewalk.train.recipes.carry_on import CarryOnSettings, carry_on
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.train import TrainingPlan

from train.texts import folder_of, tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")
ROOT = Path(__file__).resolve().parents[1]
TRAINED, TARGET = 32, 64
IDS = torch.randint(5, 290, (1, 60), generator=torch.Generator().manual_seed(1))


@pytest.fixture(params=[pytest.param("a package", marks=pytest.mark.nightly), "a file"])
def line(request, tmp_path, monkeypatch):
    """The three methods on a line."""
    with installed(tmp_path / "packages", monkeypatch) as install:
        if request.param == "a package":
            install(OF_THREE, THREE)
            yield "slope:factor=2+halfway:window=6+pull"
        else:
            path = method_file(tmp_path, THREE, "three.py")
            yield f"{path}:Slope:factor=2+{path}:Half:window=6+{path}:Pull"


def of_file(place):
    """Whether the methods come from a file, and from no package."""
    return (place / "three.py").exists()


@pytest.fixture
def trained(line, tmp_path):
    """A tiny model, trained for some steps under them: its folder."""
    start, texts = tmp_path / "start", folder_of(tmp_path / "texts", count=40)
    shape = ModelShape(vocabulary=300, width=32, inner=48, layers=2, heads=2, trained_len=TRAINED)
    new_small_model(shape, end=tokenizer().eos_token_id).save_pretrained(start)
    tokenizer().save_pretrained(start)
    plan = TrainingPlan(steps=4, rows=2, progress=False, log_every=1, learning_rate=1e-2)
    settings = CarryOnSettings(plan=plan, model=str(start), extension=line, length=TARGET, corpus=texts)
    carry_on(tmp_path / "run", settings)
    return tmp_path / "run" / "model"


def elsewhere(tmp_path, code):
    """What another process prints, where the packages are installed and no file is known."""
    packages = tmp_path / "packages"
    path = f"import sys; sys.path.insert(0, {str(packages)!r})\n" * packages.is_dir()
    done = subprocess.run([sys.executable, "-c", path + textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()


@pytest.mark.nightly
def test_methods_of_others_do_all_that_ours_do(line, trained, tmp_path):
    extension = rw.parse(line)
    for spec in extension.methods:
        check_method(spec)
    check_attention(extension)
    check_cache(extension)

    model = rw.load(trained)
    strength = handle_of(model).layers[0].weights["pull"]["strength"].detach()
    assert handle_of(model).extension == extension
    assert strength.shape == (2,)
    assert (strength - 0.05).abs().min() > 1e-4  # it learned

    rw.save(model, tmp_path / "saved", tokenizer=tokenizer())
    with torch.no_grad():
        torch.save(model(input_ids=IDS, use_cache=False).logits, tmp_path / "logits.pt")
    torch.save(IDS, tmp_path / "ids.pt")
    said = elsewhere(tmp_path, LOADED.format(place=tmp_path))
    assert said[-1] == "the same"
    if of_file(tmp_path):
        assert "three.py; read that file, then pass trust_remote_code=True, or --trust-remote-code" in said[0]
        assert (tmp_path / "saved" / "three.py").read_text() == THREE

    compared = rw.compare(
        str(tmp_path / "saved"),
        ["rope", line],
        lengths=[TARGET],
        samples=2,
        tasks="context",
        corpus=folder_of(tmp_path / "held out", count=120),
        options=rw.RunOptions(progress=False),
    )
    seen = {(row["extension"], row["length"]) for row in compared.rows}
    names = ("bare", "rope", line, f"last {TRAINED} alone")
    assert seen == {(name, length) for name in names for length in (TRAINED, TARGET)}

    exported = rw.export(model, tmp_path / "served", target="vllm", target_len=TARGET)
    assert exported.kind == "plugin"
    assert ("--trust-remote-code" in exported.command) == of_file(tmp_path)
    assert "my-package installed in its environment too" in str(exported) or of_file(tmp_path)
    require_planned(model, tmp_path)


LOADED = """
import torch, ropewalk as rw
try:
    model = rw.load("{place}/saved")
except rw.Unreadable as refused:
    print(refused)
    model = rw.load("{place}/saved", trust_remote_code=True)
with torch.no_grad():
    logits = model(input_ids=torch.load("{place}/ids.pt"), use_cache=False).logits
print("the same" if torch.equal(logits, torch.load("{place}/logits.pt")) else "another")
"""
PLANNED = """
import torch
from types import SimpleNamespace
from ropewalk import Unreadable, attend
from ropewalk.engines.layer_plan import plan_of_layer
from ropewalk.engines.layer_plan import plans_of_model
from ropewalk.hf.checkpoint.fetch import fetch_config

text = fetch_config("{place}/served").get_text_config()
for trusted in (False, True):
    try:
        plans = plans_of_model(SimpleNamespace(hf_text_config=text, model="{place}/served", trust_remote_code=trusted))
    except Unreadable as refused:
        print(refused)
plan, layer = plan_of_layer(text, 1)
q, k, v = torch.load("{place}/qkv.pt")
torch.save(attend(q, k, v, layer.extension, layer.facts, weights=layer.weights), "{place}/attended.pt")
print(plan.line)
print(plan.why_not_tables)
"""


def require_planned(model, place):
    """The plugin's loader, in a process of its own, has the plan of each layer; a file's code only where it may run."""
    layer = handle_of(model).layers[1]
    random = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(1, heads, 50, 16, generator=random, dtype=torch.float64) for heads in (2, 2, 2))
    torch.save((q, k, v), place / "qkv.pt")
    weights = {name: group for name, group in layer.weights.items() if name != MODEL}
    expected = rw.reference_attention(q, k, v, layer.extension, layer.facts, weights=weights).detach()
    *refused, line, why = elsewhere(place, PLANNED.format(place=place))
    assert line == "slope:factor=2+halfway:window=6+pull"
    assert why == "pull adds to the logits"
    assert torch.allclose(torch.load(place / "attended.pt"), expected, atol=1e-10)
    if of_file(place):
        assert "as code, in three.py; read that file, then pass trust_remote_code=True, or --trust-rem" in refused[0]
        (place / "served" / "three.py").write_text(THREE + "\n")
        said = elsewhere(place, CHANGED.format(place=place))
        assert "three.py is not the file that slope was: its hash begins with" in said[0]


CHANGED = """
from types import SimpleNamespace
from ropewalk import Unreadable
from ropewalk.engines.layer_plan import plans_of_model
from ropewalk.hf.checkpoint.fetch import fetch_config

text = fetch_config("{place}/served").get_text_config()
try:
    plans_of_model(SimpleNamespace(hf_text_config=text, model="{place}/served", trust_remote_code=True))
except Unreadable as refused:
    print(refused)
"""


def test_what_contributing_shows_passes_what_it_calls(tmp_path, monkeypatch):
    """The printed file, in a package with the printed entry points, under the printed test."""
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## A method without editing the package\n")[2]
    blocks = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", section.partition("\n## ")[0], flags=re.DOTALL))
    points = dict(re.findall(r'^(\w+) = "my_package.my_methods:(\w+)"$', section, flags=re.MULTILINE))
    path = method_file(tmp_path, blocks["my_methods.py"])
    extension = rw.parse(f"{path}:Slope:factor=8+{path}:Halfway:window=9+{path}:Pull")
    assert [spec.name for spec in extension.methods] == [*points]
    with installed(tmp_path / "packages", monkeypatch) as install:
        module = install(points, blocks["my_methods.py"])
        names = {}
        exec(blocks["test_my_methods.py"].replace("my_package.my_methods", module), names)
        names["test_our_methods"]()
        slope = names["Slope"]
        layered = rw.Extension(frequencies=slope(factor=8), layers={0: rw.Extension(frequencies=slope(factor=2))})
        assert rw.Extension.from_json(layered.to_json()) == layered


@pytest.mark.nightly
def test_check_reads_a_plan_whose_code_may_run(line, trained, tmp_path):
    rw.export(rw.load(trained), tmp_path / "served", target="vllm", target_len=TARGET)
    code = """
    import json, ropewalk as rw
    for trusted in (False, True):
        checked = rw.check("{place}/served", target_len=64, options=rw.LoadOptions(trust_remote_code=trusted))
        print(json.dumps([checked.verdict, str(checked)]))
    """
    first, second = map(json.loads, elsewhere(tmp_path, textwrap.dedent(code).format(place=tmp_path)))
    assert ("read that file, then check, and start vLLM, with --trust-remote-code" in first[1]) == of_file(tmp_path)
    assert "was not allowed to run" not in second[1]
    assert (first[0] == second[0]) == (not of_file(tmp_path))
