"""What the options, the folders and the config already rule out is refused before any weights are read."""

import os
import socket

import pytest
from transformers import PreTrainedModel

from ropewalk.cli.main import run
from ropewalk.folders import lock_folder

TRAIN = "--set model=default --set steps=2 --set length=2048"
CARRY_ON = f"train carry_on --out new {TRAIN} --set extension"
REFUSED = {
    "export default yarn --to 4k -o taken": "--out must be new or empty",
    "export default yarn --to 4k --target nosuch": "there is no engine 'nosuch'",
    "export default yarn --to 4k --force": "--force overwrites a GGUF file alone",
    "export default yarn --to 4k --target mlx --plugin": "--plugin must be left out for mlx",
    "export default rerope --to 4k --target llama.cpp": "llama.cpp cannot run it",
    "export default rerope --to 4k --no-plugin": "vllm alone cannot run it",
    "export default dynamic_ntk --target mlx": "dynamic must be made static",
    "export default yarn --to 256": "--to must be above the trained length (512)",
    "extend default yarn --to 4k -o taken": "--out must be new or empty",
    "extend taken/x.gguf yarn --to 4k -o new": "ropewalk export taken/x.gguf yarn --to 4k writes another",
    "export taken/x.gguf rerope --target vllm -o new": "is a GGUF file, whose weights transformers cannot",
    "serve default yarn:factor=0 --port 0": "factor must be at least 1",
    "serve default yarn --to 256 --port 0": "--to must be above the trained length (512)",
    "serve default --extensions yarn --port 0": "yarn needs factor",
    "serve default --port {port}": "--host and --port must be free",
    "fit default --to 256 -o new": "--to must be above the trained length (512)",
    "fit default --to 2k --lengths 4k -o new": "--lengths must be below the target (2048)",
    "fit default --corpus nosuch -o new": "--corpus must be one of python,",
    "fit default --judge-on folder:nosuch -o new": "corpus must be a path that exists",
    "fit default --storage junk://x -o new": "--storage must be a study that Optuna opens",
    "fit default -o taken/file": "--out must be a folder",
    "diagnose default yarn --length 256 -o new": "--length must be above the trained length (512), got 256",
    "compare default yarn --corpus nosuch -o new": "--corpus must be one of python,",
    "compare default yarn --lengths 256,1k -o new": "--lengths must be at least the trained length (512), got 256",
    f"{CARRY_ON}=yarn:factor=0": "factor must be at least 1",
    f"{CARRY_ON}=yarn --set corpus=nosuch": "corpus must be one of python,",
    f"train carry_on --out locked {TRAIN} --set extension=yarn": "another training writes to",
    f"train long_instruct --out new {TRAIN} --set extension=yarn:factor=0": "factor must be at least 1",
    "train drope --out new --set model=default --set steps=2 --set corpus=nosuch": "corpus must be one of python,",
}
ACCEPTED = [
    "export default yarn --to 4k -o new",
    "serve default yarn --to 4k --port 0",
    "fit default --to 2k -o new",
    f"{CARRY_ON}=yarn",
]
READ = "the weights are read"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ValueError(READ)

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", fail)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("somebody's")
    (tmp_path / "taken" / "x.gguf").touch()
    return tmp_path


@pytest.fixture
def port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.sampled(cases=5)
@pytest.mark.parametrize("command", REFUSED)
def test_refused(folder, port, capsys, command):
    (folder / "locked").mkdir()
    held = lock_folder(folder / "locked")
    assert run(command.format(port=port).split()) == 2
    os.close(held)
    assert REFUSED[command] in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["locked", "taken"]


@pytest.mark.parametrize("command", ACCEPTED)
def test_without_a_reason_the_weights_are_read(folder, capsys, command):
    assert run(command.split()) == 2
    assert READ in capsys.readouterr().err
