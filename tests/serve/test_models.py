"""`/v1/models`."""

import openai
import pytest

from serve.conftest import call, client_of


def test_every_extension_is_a_model(server):
    models = client_of(server).models.list().data
    assert [model.id for model in models] == [
        "default@rerope+log_n",
        "default@bare",
        "default@yarn:factor=4",
        "default@streaming:window=252,n_sink=4",
    ]
    assert models[2].ropewalk == {
        "extension": "yarn:factor=4",
        "trained_len": 512,
        "target_len": 2048,
        "chat": False,
        "layers": 6,
        "heads": 4,
    }


@pytest.mark.parametrize("name", ["default", "default@log_n+rerope", "default@rerope+log_n"])
def test_a_model_is_shown_by_every_spelling(server, name):
    assert client_of(server).models.retrieve(name).id == "default@rerope+log_n"


def test_a_model_that_is_not_served(server):
    with pytest.raises(openai.NotFoundError) as refused:
        client_of(server).models.retrieve("other/model@yarn")
    assert refused.value.code == "model_not_found"
    assert call(server, "GET", "/v1/models/gpt-4").status == 404
