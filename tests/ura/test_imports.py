"""Results of others become rates, or every reason why not; a figure that stands against nothing is refused."""

import contextlib
import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.ura.catalogue import load_catalogue
from hcs.ura.imports import COLUMNS, Imported, TableError, rates_of

TODAY = datetime.date(2026, 11, 21)
CATALOGUE = load_catalogue()
A100 = {"model": "A100-SXM4-80GB", "workload": "decode", "value": "4000", "unit": "token/s", "suite": "s1"}
NPU = {"vendor": "ascend", "model": "910B3", "workload": "decode", "value": "1000", "unit": "token/s", "suite": "s1"}


def read(*rows: dict[str, str]):
    return {
        one.card.model: [(r.workload, r.milliacu, r.source, r.as_of) for r in one.rates]
        for one in rates_of(rows, CATALOGUE, TODAY)
    }


def test_a_figure_is_set_against_the_references():
    assert read(NPU, A100) == {"Ascend910B3": [("decode", 25_000, "measured", "2026-11-21")]}
    assert read(NPU | {"devices": "2", "date": "2026-01-02"}, A100) == {
        "Ascend910B3": [("decode", 12_500, "measured", "2026-01-02")]
    }


def test_acu_stand_for_themselves():
    acu = {"model": "910B3", "workload": "finetune", "value": "41.5", "unit": "acu", "source": "benchmark"}
    assert read(acu) == {"Ascend910B3": [("finetune", 41_500, "benchmark", "2026-11-21")]}


def test_the_more_trusted_then_the_newer_wins():
    acu = {"model": "910B3", "workload": "gemm", "unit": "ACU"}
    rows = [
        acu | {"value": "10", "source": "datasheet", "date": "2026-11-01"},
        acu | {"value": "20", "date": "2026-01-01"},
        acu | {"value": "30", "date": "2026-05-01"},
        acu | {"value": "40", "source": "benchmark", "date": "2026-11-01"},
    ]
    for order in (rows, rows[::-1]):
        assert read(*order)["Ascend910B3"] == [("gemm", 30_000, "measured", "2026-05-01")]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (NPU, "stands against nothing"),
        (NPU | {"suite": "s2"}, "in decode in token/s by s2"),
        (NPU | {"model": "910B9"}, "did you mean"),
        (NPU | {"model": "910B"}, "is a family"),
        (NPU | {"model": ""}, "model is empty"),
        (NPU | {"workload": "serve"}, "no workload class 'serve'"),
        (NPU | {"value": "fast"}, "a number above 0"),
        (NPU | {"value": "0"}, "a number above 0"),
        (NPU | {"value": "1e99"}, "a number above 0"),
        (NPU | {"source": "derived"}, "source is 'derived'"),
        (NPU | {"date": "yesterday"}, "date is 'yesterday'"),
        (NPU | {"date": "2027-01-01"}, "lies in the future"),
        (NPU | {"devices": "1.5"}, "devices is '1.5'"),
        (NPU | {"unit": "ACU", "value": "0.0001"}, "less than can be written"),
        (A100, "no row of a card other than the reference"),
    ],
)
def test_what_is_wrong_is_told_with_its_row(row, sentence):
    with pytest.raises(TableError) as caught:
        read(row)
    (problem,) = caught.value.problems
    assert sentence in problem


def test_all_problems_are_told_at_once_and_nothing_is_taken():
    with pytest.raises(TableError) as caught:
        read(A100, NPU, NPU | {"value": "x"}, NPU | {"workload": "y"})
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["row 4", "row 5"]


cells = st.one_of(
    st.none(), st.text(max_size=8), st.sampled_from(("910B3", "gemm", "decode", "1", "0.5", "ACU", "T4", "2026-01-01"))
)


@given(st.lists(st.dictionaries(st.sampled_from(COLUMNS), cells), max_size=5))
def test_any_table_is_read_or_refused(rows):
    imported: tuple[Imported, ...] = ()
    with contextlib.suppress(TableError):
        imported = rates_of(rows, CATALOGUE, TODAY)
    assert all(rate.milliacu > 0 for one in imported for rate in one.rates)
