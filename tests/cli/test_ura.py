"""``hcs ura import``: a table in, objects that the API server takes out."""

import pytest
import yaml
from typer.testing import CliRunner

from hcs.cli.main import build
from hcs.kube.manifests import read_manifests

GOOD = "vendor,model,workload,value,unit\n,A100-SXM4-80GB,decode,4000,token/s\nascend,910B3,decode,1000,token/s\n"


def run(*arguments: str, stdin: str = ""):
    return CliRunner().invoke(build(), ["ura", "import", *arguments], input=stdin, prog_name="hcs")


def test_a_table_becomes_an_exchange_rate(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(GOOD)
    result = run(str(path))
    assert result.exit_code == 0
    (made,) = yaml.safe_load_all(result.stdout)
    assert made["kind"] == "ExchangeRate"
    assert made["metadata"]["name"] == "ascend-ascend910b3"
    (rate,) = made["spec"]["rates"]
    assert (rate["workload"], rate["milliacu"], rate["source"]) == ("decode", 25_000, "measured")
    assert "25 ACU (measured); the catalogue says" in result.stderr
    (tmp_path / "out.yaml").write_text(result.stdout)
    assert list(read_manifests(tmp_path / "out.yaml")) == [made]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it lacks model, workload, value, unit"),
        ("model,workload,value\n", "it lacks unit"),
        ("model,workload,value,unit,colour\n", "there is no column 'colour'"),
        ("model,workload,value,unit\na,b,c,d,e\n", "more cells than the header"),
        ("model,workload,value,unit\nT4,gemm,16,TFLOPS\n", "stands against nothing"),
        ('model,workload,value,unit\n"T4', "unexpected end"),
    ],
)
def test_a_bad_table_is_refused(text, why):
    result = run("-", stdin=text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr


def test_a_missing_file():
    result = run("nowhere.csv")
    assert result.exit_code == 2
    assert "No such file" in result.stderr
