"""What vendors' fault codes mean."""

import pytest

from hcs.health.faults import classify


@pytest.mark.parametrize(
    ("vendor", "code", "verdict", "reason"),
    [
        pytest.param("nvidia", 0, "Healthy", "NoFault", id="no-fault"),
        pytest.param("nvidia", 79, "Failed", "FellOffTheBus", id="fell-off-the-bus"),
        pytest.param("nvidia", 13, "Healthy", "NoFault", id="the-program-was-wrong-not-the-card"),
        pytest.param("nvidia", 74, "SubHealthy", "NvlinkError", id="a-link-is-not-the-card"),
        pytest.param("nvidia", 9999, "SubHealthy", "UnknownFault", id="unknown-is-a-reason-for-care"),
        pytest.param("ascend", 0x80C98001, "Failed", "RestartNpu", id="ai-core"),
        pytest.param("ascend", 0x81078603, "Healthy", "NoFault", id="network-port-flap"),
        pytest.param("cambricon", 7, "SubHealthy", "UnknownFault", id="vendor-without-a-table"),
    ],
)
def test_a_code_becomes_a_verdict(vendor: str, code: int, verdict: str, reason: str) -> None:
    fault = classify(vendor, code)
    assert (fault.verdict, fault.reason) == (verdict, reason)
    assert fault.message or verdict == "Healthy"
