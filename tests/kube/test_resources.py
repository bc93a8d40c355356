"""What our objects look like on the wire."""

import msgspec
import pytest

from hcs.kube.resources import Event


@pytest.mark.parametrize("kind", ["Normal", "Warning"])
def test_an_event_says_its_type_also_where_it_is_the_usual_one(kind: str) -> None:
    """``kubectl describe`` shows an empty column otherwise."""
    assert msgspec.json.decode(msgspec.json.encode(Event(type=kind)))["type"] == kind
    assert msgspec.json.decode(msgspec.json.encode(Event()))["type"] == "Normal"
    assert msgspec.json.decode(b"{}", type=Event).type == "Normal"
