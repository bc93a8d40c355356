"""Sets of CPUs, read and written."""

from hypothesis import given
from hypothesis import strategies as st

from hcs.rtos.cpusets import CpuSet, parse_cpuset, union

texts = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 5)).map(lambda pair: f"{pair[0]}-{pair[0] + pair[1]}"), max_size=6
).map(",".join)


@given(texts, texts, st.integers(1, 50))
def test_sets_are_sets(first: str, second: str, count: int) -> None:
    one, other = parse_cpuset(first), parse_cpuset(second)
    assert set(one | other) == set(one) | set(other)
    assert set(one.without(other)) == set(one) - set(other)
    assert set(one.below(count)) == {cpu for cpu in one if cpu < count}
    assert len(one) == len(set(one))
    for made in (one, one | other, one.without(other), one.below(count), union([one, other])):
        assert parse_cpuset(str(made)) == made
        assert list(made) == sorted(set(made))


def test_touching_ranges_become_one() -> None:
    assert str(parse_cpuset(" 4 - 5 ,0-1,2,3")) == "0-5"
    assert parse_cpuset("\t") == CpuSet()
