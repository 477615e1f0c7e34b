"""`deploy`: what the image and the unit name is there, and the commands that they run are the server's."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from fnmatch import fnmatch
from pathlib import Path

import pytest

from real_server import Server

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
# Source: man systemd.unit, systemd.service, systemd.exec, systemd.kill.
OPTIONS = {
    "Unit": {"Description", "Documentation", "Wants", "After"},
    "Service": {
        *("ExecStart", "EnvironmentFile", "Environment", "Restart", "RestartSec", "TimeoutStopSec", "DynamicUser"),
        *("CacheDirectory", "WorkingDirectory", "NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectSystem"),
        *("ProtectHome", "ProtectKernelTunables", "ProtectControlGroups", "RestrictAddressFamilies"),
        *("RestrictSUIDSGID", "LockPersonality"),
    },
    "Install": {"WantedBy"},
}


def steps():
    """The instructions of the Dockerfile in their order."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def unit():
    parser = ConfigParser(interpolation=None, delimiters="=")
    parser.optionxform = str
    parser.read(DEPLOY / "ropewalk-serve.service")
    return parser


def is_sent(path):
    """Whether a file of the checkout reaches the builder: the last line that names it decides."""
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    matching = [rule for rule in rules if fnmatch(path, rule.removeprefix("!"))]
    return not matching or matching[-1].startswith("!")


def test_a_wheel_is_made_of_what_the_image_copies(tmp_path):
    *_, installs = [words for kind, words in steps() if kind == "RUN" and "pip install" in words]
    copies = [words.split() for kind, words in steps() if kind == "COPY"]
    for *sources, target in copies:
        for source in sources:
            assert is_sent(source)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, tmp_path / target)
    pip = shlex.split(installs.partition(" && ")[0])
    assert pip[:2] == ["pip", "install"]
    package, constraints = (word for word in pip[2:] if not word.startswith("-"))
    assert package == ".[serve]"
    assert (tmp_path / constraints).is_file()
    build = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=tmp_path, capture_output=True, text=True, check=True)
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", done.stdout.split()[-1]], cwd=tmp_path, capture_output=True, text=True
    ).stdout
    for name in ("ropewalk/serve/server.py", "ropewalk/models/default/model.safetensors", "licenses/LICENSE"):
        assert name in listed


@pytest.mark.nightly
def test_the_image_serves_and_its_check_sees_that():
    found = dict(steps())
    assert found["USER"] != "root"
    command = json.loads(found["ENTRYPOINT"]) + json.loads(found["CMD"])
    assert command[:2] == ["ropewalk", "serve"]
    assert command[command.index("--port") + 1] == found["EXPOSE"]
    arguments = ["0" if word == found["EXPOSE"] else word for word in command[2:]]
    refused = Server(*arguments, ROPEWALK_API_KEY="")
    _, said = refused.process.communicate(timeout=120)
    assert refused.process.returncode == 2
    assert "ROPEWALK_API_KEY" in said
    server = Server(*arguments, ROPEWALK_API_KEY="a-key").ready()
    try:
        python, *check = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
        assert python == "python"
        port = server.url.rpartition(":")[2]
        check = [word.replace(f":{found['EXPOSE']}/", f":{port}/") for word in check]
        assert subprocess.run([sys.executable, *check], timeout=60, check=False).returncode == 0
    finally:
        assert server.end()[0] == 0
    assert subprocess.run([sys.executable, *check], timeout=60, check=False, capture_output=True).returncode == 1


@pytest.mark.nightly
def test_the_unit_has_known_options_and_serves_this_machine():
    read = unit()
    assert {section: set(read[section]) for section in read.sections()} == OPTIONS
    program, verb, *arguments = shlex.split(read["Service"]["ExecStart"])
    assert (Path(program).name, verb) == ("ropewalk", "serve")
    arguments[arguments.index("--port") + 1] = "0"
    server = Server(*arguments, ROPEWALK_API_KEY="").ready()
    assert server.url.startswith("http://127.0.0.1:")
    assert server.end()[0] == 0


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd")
def test_systemd_takes_the_unit(tmp_path):
    text = (DEPLOY / "ropewalk-serve.service").read_text().replace("/opt/ropewalk/bin/ropewalk", sys.executable)
    (tmp_path / "ropewalk-serve.service").write_text(text)
    command = ["systemd-analyze", "verify", tmp_path / "ropewalk-serve.service"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
