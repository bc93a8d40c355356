"""Certificates are made so that Kubernetes accepts them, and told apart exactly."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hcs.process.certificates import Authority, KeyPair, service_names

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def test_all_names_stand_in_the_alternative_names() -> None:
    names = service_names("hcs-injector", "hcs-system")
    pair = Authority.create("test").issue(names)
    assert pair.alternative_names() == set(names)
    assert "hcs-injector.hcs-system.svc" in names, "this is the name an API server checks"


def test_validity_begins_before_now_because_clocks_differ() -> None:
    first, last = Authority.create("test").issue(["a"], days=10, now=NOW).lifetime()
    assert first < NOW
    assert last == NOW + timedelta(days=10)


def test_an_authority_knows_its_own_certificates() -> None:
    one, other = Authority.create("same name"), Authority.create("same name")
    pair = one.issue(["a"])
    assert one.issued(pair)
    assert not other.issued(pair)
    assert not Authority.create("another name").issued(pair)
    assert not one.issued(KeyPair(pair.certificate, one.issue(["a"]).key)), "the key must belong to the certificate"


def test_an_authority_is_read_back_from_its_folder(tmp_path: Path) -> None:
    assert Authority.load_or_create(tmp_path) == Authority.load_or_create(tmp_path)


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    _, key = Authority.create("test").pair.write(tmp_path / "new" / "folder", "ca")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert sorted(path.name for path in key.parent.iterdir()) == ["ca.crt", "ca.key"]


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(KeyPair(b"", b""), id="empty"),
        pytest.param(KeyPair(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b""), id="garbage"),
    ],
)
def test_what_is_no_certificate_is_a_value_error(pair: KeyPair) -> None:
    with pytest.raises(ValueError, match=r"PEM|pars"):
        pair.lifetime()


def test_a_certificate_needs_a_name() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Authority.create("test").issue([])
