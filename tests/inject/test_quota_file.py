"""The quota file says the same to whoever reads it, and a faulty one says nothing."""

from __future__ import annotations

import string
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.native.toolkit import REPOSITORY, compile_sources

from hcs.inject.quota_file import MAX_QUOTA_BYTES, QuotaCard, QuotaFile, QuotaFileError, parse, render

A100 = QuotaCard(
    vendor="nvidia",
    uuid="GPU-5f3c9a1e-0b1d-4c5e-9f00-0123456789ab",
    quota_bytes=16 << 30,
    context_bytes=450 << 20,
    bus_id="00000000:3B:00.0",
)
ASCEND = QuotaCard(vendor="ascend", uuid="185011D4-21104518-A0C4ED94-14CC040A-56102003", quota_bytes=1, physical_id=6)

TEXT = """\
hcs-quota 1
counter 7
ledger ledger
card nvidia GPU-5f3c9a1e-0b1d-4c5e-9f00-0123456789ab 17179869184 471859200 00000000:3B:00.0 -
card ascend 185011D4-21104518-A0C4ED94-14CC040A-56102003 1 0 - 6
end 2
"""


def test_format_1_is_frozen() -> None:
    quota = QuotaFile(cards=(A100, ASCEND), counter=7)
    assert render(quota) == TEXT
    assert parse(TEXT) == quota


WORDS = st.text(string.ascii_letters + string.digits + "-_.:/", min_size=2, max_size=31)
CARDS = st.builds(
    QuotaCard,
    vendor=st.sampled_from(["nvidia", "ascend", "cambricon", "hygon", "mthreads"]),
    uuid=WORDS,
    quota_bytes=st.integers(1, MAX_QUOTA_BYTES),
    context_bytes=st.integers(0, MAX_QUOTA_BYTES),
    bus_id=st.none() | WORDS,
    physical_id=st.integers(0, 2**31 - 1),
)
QUOTAS = st.builds(
    QuotaFile,
    cards=st.lists(CARDS, min_size=1, max_size=32, unique_by=lambda card: card.uuid).map(tuple),
    counter=st.integers(0, 2**63 - 1),
    ledger=st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,40}", fullmatch=True),
)


@given(QUOTAS)
@settings(max_examples=25)
def test_what_is_written_is_what_is_read(quota: QuotaFile) -> None:
    assert parse(render(quota)) == quota


@pytest.fixture(scope="module")
def c_reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interceptor's own parser as a program."""
    sources = [REPOSITORY / "tests/native/programs/quota_check.c", REPOSITORY / "native/interceptor/quota.c"]
    return compile_sources(tmp_path_factory.mktemp("reader"), sources, "quota_check", "-fsanitize=address,undefined")


def read_in_c(reader: Path, text: str) -> tuple[bool, str]:
    done = subprocess.run([reader], input=text.encode(), capture_output=True, check=False)
    assert done.stderr == b""
    return done.returncode == 0, done.stdout.decode()


@given(quota=QUOTAS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_c_understands_what_python_writes(c_reader: Path, quota: QuotaFile) -> None:
    lines = [f"ok {quota.counter} {quota.ledger}"] + [
        f"{card.vendor} {card.uuid} {card.quota_bytes} {card.context_bytes} {card.bus_id or '-'} {card.physical_id}"
        for card in quota.cards
    ]
    assert read_in_c(c_reader, render(quota)) == (True, "\n".join(lines) + "\n")


FAULTS = {
    "empty": "",
    "truncated": TEXT[:-4],
    "no-last-newline": TEXT[:-1],
    "text-after-the-end": TEXT + "x",
    "other-version": TEXT.replace("hcs-quota 1", "hcs-quota 2"),
    "carriage-returns": TEXT.replace("\n", "\r\n"),
    "card-missing": "\n".join(line for line in TEXT.split("\n") if "ascend" not in line),
    "no-card": "hcs-quota 1\ncounter 1\nledger ledger\nend 0\n",
    "zero-quota": TEXT.replace(" 1 0 - 6", " 0 0 - 6"),
    "negative-quota": TEXT.replace(" 1 0 - 6", " -1 0 - 6"),
    "quota-beyond-44-bits": TEXT.replace(" 1 0 - 6", f" {1 << 44} 0 - 6"),
    "quota-beyond-64-bits": TEXT.replace(" 1 0 - 6", f" {1 << 64} 0 - 6"),
    "not-a-number": TEXT.replace("17179869184", "16Gi"),
    "leading-zero": TEXT.replace("counter 7", "counter 07"),
    "two-blanks": TEXT.replace("card nvidia", "card  nvidia"),
    "field-missing": TEXT.replace(" - 6", " 6"),
    "unknown-line": TEXT.replace("end 2", "share 3\nend 2"),
    "same-card-twice": TEXT.replace(ASCEND.uuid, A100.uuid),
    "ledger-elsewhere": TEXT.replace("ledger ledger", "ledger ../ledger"),
    "ledger-is-the-directory": TEXT.replace("ledger ledger", "ledger ."),
    "uuid-too-long": TEXT.replace(ASCEND.uuid, "x" * 64),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_faulty_file_is_refused_whole_in_both_languages(c_reader: Path, fault: str) -> None:
    with pytest.raises(QuotaFileError):
        parse(FAULTS[fault])
    understood, reason = read_in_c(c_reader, FAULTS[fault])
    assert not understood
    assert reason.strip()


@given(cut=st.integers(0, len(TEXT) - 1), noise=st.text(string.printable, max_size=3))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_languages_agree_on_damaged_files(c_reader: Path, cut: int, noise: str) -> None:
    damaged = TEXT[:cut] + noise + TEXT[cut + len(noise) :]
    try:
        parse(damaged)
    except QuotaFileError:
        readable = False
    else:
        readable = True
    assert read_in_c(c_reader, damaged)[0] == readable


@pytest.mark.parametrize(
    ("quota", "message"),
    [
        pytest.param(QuotaFile(cards=()), "1 to 32 cards", id="no-card"),
        pytest.param(QuotaFile(cards=(A100, A100)), "stands twice", id="twice"),
        pytest.param(
            QuotaFile(cards=(QuotaCard(vendor="ascend", uuid="x", quota_bytes=1),)), "/dev/davinciN", id="ascend"
        ),
        pytest.param(QuotaFile(cards=(QuotaCard(vendor="nvidia", uuid="a b", quota_bytes=1),)), "word", id="blank"),
        pytest.param(QuotaFile(cards=(QuotaCard(vendor="nvidia", uuid="x", quota_bytes=0),)), "2\\^44", id="zero"),
        pytest.param(QuotaFile(cards=(A100,), ledger="/tmp/ledger"), "beside the quota file", id="ledger"),
    ],
)
def test_a_file_that_no_reader_would_accept_is_not_written(quota: QuotaFile, message: str) -> None:
    with pytest.raises(QuotaFileError, match=message):
        render(quota)
