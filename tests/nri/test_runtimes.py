"""What may be sent to a runtime follows from how it introduces itself."""

import pytest

from hcs.nri.messages import CREATE, VALIDATE
from hcs.nri.runtimes import runtime_of, subscription


@pytest.mark.parametrize(
    ("name", "version", "cdi", "args", "validates"),
    [
        pytest.param("containerd", "1.7.24~ds1", False, False, False, id="debian-1.7"),
        pytest.param("containerd", "2.1.9+unknown", True, False, False, id="2.1"),
        pytest.param("containerd", "v2.2.7", True, True, True, id="2.2"),
        pytest.param("containerd", "v2.3.4", True, True, True, id="2.3"),
        pytest.param("containerd", "v2.10.0", True, True, True, id="numbers-not-letters"),
        pytest.param("containerd", "v10.0.0-beta.1", True, True, True, id="later"),
        pytest.param("cri-o", "1.33.4", False, False, False, id="crio-1.33"),
        pytest.param("cri-o", "1.34.0", True, True, True, id="crio-1.34"),
        pytest.param("cri-o", "1.9.0", False, False, False, id="crio-old"),
        pytest.param("containerd", "unknown", False, False, False, id="no-version"),
        pytest.param("somebody", "v9.9.9", False, False, False, id="unknown-runtime"),
    ],
)
def test_abilities_by_version(name: str, version: str, cdi: bool, args: bool, validates: bool) -> None:
    runtime = runtime_of(name, version)
    assert (runtime.cdi, runtime.args, runtime.validates) == (cdi, args, validates)
    assert subscription(runtime, (CREATE, VALIDATE)) == (0x2008 if validates else 0x8)
    abilities = runtime.abilities(fail_closed=validates)
    assert (abilities.cdi, abilities.args, abilities.fail_closed) == (cdi, args, validates)
    assert abilities.runtime == f"{name} {version}"
