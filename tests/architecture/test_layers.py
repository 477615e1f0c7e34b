"""Who may import whom: the data flows one way."""

import subprocess
import sys

from architecture.ranks import RANK
from architecture.tree import CONTRACTS, FILES, assert_none, factor_of, imports, module_of

# A plugin knows its engine, which may be missing, and nothing else knows it.
PLUGINS = {"vllm": "ropewalk.engines.vllm.plugin"}
TRANSFORMERS = {"transformers", "accelerate", "peft", "safetensors", "tokenizers", "huggingface_hub"}


def part_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def own_imports(path):
    return {name for name in imports(path) if name.split(".")[0] == "ropewalk"}


def packages(path):
    return {name.split(".")[0] for name in imports(path)}


def below_hf():
    return [path for path in FILES if RANK.get(part_of(module_of(path)), 0) < RANK["hf"]]


def test_every_part_has_its_rank():
    parts = {part_of(module_of(path)) for path in FILES} - {""}
    assert_none(f"{part} has no rank: give it its place in RANKS" for part in sorted(parts - RANK.keys()))


def test_imports_run_one_way():
    """The package's __init__ apart, which collects the public names."""
    assert_none(
        f"{module_of(path)} imports {name}"
        for path in FILES
        if (mine := part_of(module_of(path)))
        for name in sorted(own_imports(path))
        if part_of(name) != mine and RANK[part_of(name)] >= RANK[mine]
    )


def test_nothing_that_is_installed_needs_the_checkout_around_it():
    around = {"studies", "tools", "benchmarks", "tests"}
    assert_none(f"{module_of(path)} imports {name}" for path in FILES for name in sorted(packages(path) & around))


def test_methods_import_what_they_all_have_and_nothing_beside_it():
    assert_none(
        f"{module_of(path)} imports {name}"
        for path in FILES
        if (folder := factor_of(path)) and path.name != "__init__.py"
        for name in sorted(own_imports(path) - {f"ropewalk.{folder}.{CONTRACTS[folder]}"})
        if part_of(name) == folder
    )


def test_only_hf_and_above_know_transformers():
    assert_none(
        f"{module_of(path)} imports {name}" for path in below_hf() for name in sorted(packages(path) & TRANSFORMERS)
    )


def test_the_core_needs_torch_alone():
    assert_none(
        f"{module_of(path)} imports {name}"
        for path in below_hf()
        for name in sorted(packages(path) - allowed_in_the_core(module_of(path)))
    )


def allowed_in_the_core(module):
    engines = {engine for engine, folder in PLUGINS.items() if module.startswith(f"{folder}.")}
    return {"ropewalk", "torch"} | engines | set(sys.stdlib_module_names)


def test_an_engine_is_imported_by_its_plugin_alone():
    assert_none(
        f"{module_of(path)} imports {engine}"
        for path in FILES
        for engine, folder in PLUGINS.items()
        if engine in packages(path) and not module_of(path).startswith(f"{folder}.")
    )


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_loads_nothing_heavy():
    loaded = run(
        "import sys, torch; before = set(sys.modules); import ropewalk;"
        "print(sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    for name in ("transformers", "typer", "rich", "matplotlib", "accelerate"):
        assert repr(name) not in loaded


def test_importing_does_not_load_torch_until_a_name_needs_it():
    assert run("import sys, ropewalk, ropewalk.cli.parser; print('torch' in sys.modules)") == "False"
    assert run("import sys, ropewalk; ropewalk.Extension; print('torch' in sys.modules)") == "True"


def test_importing_patches_nothing():
    """Every attribute of torch's modules and of its tensor and module classes is the object that it was."""
    changed = run(
        "import sys, torch, torch.nn.functional\n"
        "names = [name for name in sys.modules if name.split('.')[0] in ('torch', 'math', 'json', 'builtins')]\n"
        "holders = [sys.modules[name] for name in names if sys.modules[name]] + [torch.Tensor, torch.nn.Module]\n"
        "def look(): return {(i, k): id(v) for i, h in enumerate(holders) for k, v in list(vars(h).items())}\n"
        "before, state = look(), torch.get_rng_state()\n"
        "import ropewalk, ropewalk.cli.parser, ropewalk.equation\n"
        "after = look()\n"
        "print([key for key in before if after.get(key) != before[key]],\n"
        "      torch.equal(state, torch.get_rng_state()), torch.get_default_dtype(), torch.is_grad_enabled())"
    )
    assert changed == "[] True torch.float32 True"
