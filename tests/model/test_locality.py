"""The four annotations about nearness: what is read, and what is refused with a way to write it."""

import pytest

from hcs.model import names
from hcs.model.locality import NOWHERE, DataSourceRule, FabricRule, LinkRule, Locality, read_locality
from hcs.model.refusals import Refusal


def read(**annotations: str) -> tuple[Locality, list[Refusal]]:
    """Read annotations by their short names."""
    refusals: list[Refusal] = []
    keys = {f"{names.DOMAIN}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return read_locality(keys, refusals), refusals


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, NOWHERE, id="nothing"),
        pytest.param({"numa": "required"}, Locality(numa="required"), id="numa"),
        pytest.param({"numa": " preferred "}, Locality(numa="preferred"), id="numa-preferred"),
        pytest.param({"interconnect": "nvlink"}, Locality(links=LinkRule(("nvlink",))), id="a-kind-is-required"),
        pytest.param(
            {"interconnect": "preferred: NVLink, HCCS"},
            Locality(links=LinkRule(("nvlink", "hccs"), required=False)),
            id="kinds-preferred",
        ),
        pytest.param(
            {"interconnect": "MLU-Link >= 200GB/s"},
            Locality(links=LinkRule(("mlulink",), 200_000)),
            id="with-bandwidth",
        ),
        pytest.param({"interconnect": ">= 1.5 GB/s"}, Locality(links=LinkRule((), 1_500)), id="bandwidth-alone"),
        pytest.param(
            {"interconnect": "preferred:>=900MB/s"}, Locality(links=LinkRule((), 900, False)), id="megabytes-preferred"
        ),
        pytest.param({"interconnect": "p2p"}, Locality(links=LinkRule(("p2p",))), id="peer-access"),
        pytest.param({"fabric": "required"}, Locality(fabric=FabricRule()), id="any-fabric"),
        pytest.param({"fabric": "preferred"}, Locality(fabric=FabricRule(required=False)), id="any-fabric-preferred"),
        pytest.param({"fabric": "ib-a, ib-b"}, Locality(fabric=FabricRule(("ib-a", "ib-b"))), id="named-fabrics"),
        pytest.param({"data_source": "lake-1"}, Locality(data_source=DataSourceRule("lake-1")), id="data"),
        pytest.param(
            {"data_source": "lake-1 <= 1.5ms"}, Locality(data_source=DataSourceRule("lake-1", 1500)), id="data-within"
        ),
        pytest.param(
            {"data_source": "lake-1<=80us"}, Locality(data_source=DataSourceRule("lake-1", 80)), id="microseconds"
        ),
    ],
)
def test_rules_are_read(annotations: dict[str, str], expected: Locality) -> None:
    assert read(**annotations) == (expected, [])


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        ({"numa": "0"}, "required, preferred"),
        ({"interconnect": "nvlnk"}, "known kinds are"),
        ({"interconnect": ""}, "name a kind or a bandwidth"),
        ({"interconnect": "nvlink >= fast"}, ">= 200GB/s"),
        ({"interconnect": "nvlink >= 200"}, ">= 200GB/s"),
        ({"fabric": ""}, "names of networks"),
        ({"fabric": "a b"}, "names of networks"),
        ({"data_source": ""}, "lake-1 <= 5ms"),
        ({"data_source": "lake <= soon"}, "lake-1 <= 5ms"),
        ({"data_source": "lake <= 5"}, "lake-1 <= 5ms"),
    ],
)
def test_what_cannot_be_read_is_refused_with_an_example(annotations: dict[str, str], says: str) -> None:
    found, refusals = read(**annotations)
    assert found == NOWHERE
    assert [refusal.reason for refusal in refusals] == ["UnknownValue"]
    assert says in refusals[0].message


def test_a_rule_binds_or_is_a_wish() -> None:
    strict, _ = read(interconnect="nvlink")
    wish, _ = read(interconnect="preferred:nvlink")
    near, _ = read(data_source="lake")
    within, _ = read(data_source="lake <= 1ms")
    assert [(x.binding, x.wishes, x.pairing) for x in (strict, wish, near, within, NOWHERE)] == [
        (True, False, True),
        (False, True, False),
        (False, True, False),
        (True, False, False),
        (False, False, False),
    ]
