"""What the verb ``layer`` prints, in a report."""

import json
from pathlib import Path

import pytest

from orchestrator.errors import InvalidValueError
from orchestrator.report.layers import read_layers
from tests.reports import LAYER


def test_each_variant_is_a_bar_of_shares(tmp_path: Path) -> None:
    path = tmp_path / "layer.json"
    path.write_text(json.dumps(LAYER))
    (bar,) = read_layers([str(path)])
    assert bar.title == "tiny h=64 tp=1 b=1 s=8 fp16, without FlashAttention"
    assert (bar.gpu, bar.seconds, bar.gemm_share) == ("NVIDIA H200", 4e-6, 0.75)
    assert [(each.name, each.kind, each.share) for each in bar.components] == [
        ("qkv", "gemm", 0.75),
        ("norm", "other", 0.25),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "is not what `layer --json` prints"),
        ('{"device": null, "layers": [{}]}', "is not what `layer --json` prints"),
        ('{"device": null, "layers": 3}', "is not what `layer --json` prints"),
    ],
)
def test_another_file_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "it.json"
    path.write_text(text)
    with pytest.raises(InvalidValueError, match=r"it\.json") as caught:
        read_layers([str(path)])
    assert words in str(caught.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidValueError, match=r"no/such\.json: No such file"):
        read_layers(["no/such.json"])
