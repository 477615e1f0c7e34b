"""The printed command starts a server, and the server answers what the extended model answers."""

import pytest

import ropewalk as rw

from real_engines import models
from real_engines.process import ROOT, posted, serving

TARGET = 2048
SMALL = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}


def environment(folder):
    """`vllm serve` of vllm-cpu looks for the metadata of a distribution `vllm`, and for its machine in the version."""
    metadata = folder / "metadata" / "vllm-0.32.0+cpu.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
    return {**SMALL, "PYTHONPATH": f"{ROOT}:{metadata.parent}", "TORCHDYNAMO_DISABLE": "1"}


def require_answers(url, result, prompt, model, max_tokens=2):
    """The server's next token, and what it says of it, are the model's."""
    body = {"model": str(result.directory), "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "logprobs": 1}
    said = posted(f"{url}/v1/completions", body)["choices"][0]
    likeliest = models.log_probabilities(model, prompt)[-1].topk(1)
    assert said["text"].startswith(models.carried_tokenizer().decode(likeliest.indices))
    assert said["logprobs"]["token_logprobs"][0] == pytest.approx(float(likeliest.values), abs=1e-4)


def test_a_server_answers_by_the_printed_command(tmp_path):
    model, tokenizer = models.carried(), models.carried_tokenizer()
    rw.extend(model, "yarn+log_n", target_len=TARGET)
    result = rw.export(model, tmp_path / "model", target="vllm", target_len=TARGET, tokenizer=tokenizer)
    command = f"{result.command} --dtype float32 --enforce-eager"
    with serving("vllm", command, tmp_path, **environment(tmp_path)) as url:
        require_answers(url, result, models.prompt(1500), model)


@pytest.mark.nightly
def test_a_server_chooses_a_factor_for_each_request(tmp_path):
    """Between processes: the one that names cached pages is not the one that rotates."""
    model, tokenizer = models.carried(), models.carried_tokenizer()
    with rw.extended(model, "dynamic_yarn"):
        options = {"target": "vllm", "tokenizer": tokenizer, "request_factors": (1, 2, 4)}
        result = rw.export(model, tmp_path / "model", **options)
    command = f"{result.command} --dtype float32 --enforce-eager"
    with serving("vllm", command, tmp_path, **environment(tmp_path)) as url:
        for factor, length, answer in ((1, 400, 8), (2, 400, 200), (4, 1500, 8), (1, 500, 8), (2, 700, 8)):
            with rw.extended(model, f"yarn:factor={factor}"):
                require_answers(url, result, models.prompt(length), model, answer)
