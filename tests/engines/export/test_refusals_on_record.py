"""The refusals in docs/engines.md are those of the rules today, word by word; what ran is run by `make engines`."""

import json
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk import DoesNotFit

from real_engines import models

RECORD = Path(__file__).resolve().parents[3] / "docs" / "results" / "engines" / "llama_cpp.json"
REFUSED = [row for row in json.loads(RECORD.read_text())["rows"] if "refused" in row]


@pytest.mark.sampled(cases=8)
@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row['architecture']}-{row['method']}")
def test_llama_cpp(tmp_path, row):
    model = models.carried() if row["architecture"] == "any" else models.small(row["architecture"])
    length = models.LONGEST if row["architecture"] == "any" else None
    with rw.extended(model, row["method"]), pytest.raises(DoesNotFit) as refused:
        rw.export(model, tmp_path / "out", target="llama.cpp", target_len=length)
    assert str(refused.value) == row["refused"]
    assert list(tmp_path.iterdir()) == []
