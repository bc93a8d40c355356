"""The webhook over HTTP: answers, health, metrics, and a limit on what it reads."""

import msgspec
from starlette.testclient import TestClient
from tests.injector.pods_for_admission import pod, review

from hcs.injector.app import MAX_BODY, build
from hcs.injector.settings import Settings
from hcs.model import names
from hcs.ura.catalogue import load_catalogue


def client() -> TestClient:
    return TestClient(build(load_catalogue(), Settings()))


def test_reviews_are_answered_and_counted() -> None:
    webhook = client()
    for raw in (pod(), pod({names.VRAM: "x"}), pod({"cpu": "1"})):
        reply = webhook.post("/mutate?timeout=5s", json=review(raw))
        assert reply.status_code == 200
        assert reply.headers["content-type"] == "application/json"
        assert reply.json()["kind"] == "AdmissionReview"
    assert webhook.post("/mutate", content=b"hello").status_code == 400
    metrics = webhook.get("/metrics").text
    for outcome in ("mutated", "refused", "untouched", "malformed"):
        assert f'hcs_injector_reviews_total{{outcome="{outcome}"}} 1.0' in metrics


def test_a_huge_body_is_refused() -> None:
    reply = client().post("/mutate", content=b" " * (MAX_BODY + 1))
    assert reply.status_code == 413
    assert str(MAX_BODY) in reply.text


def test_a_review_of_the_largest_pod_an_api_server_takes_is_read() -> None:
    raw = pod(container={"args": ["x" * (3 << 20)]})
    body = msgspec.json.encode(review(raw))
    reply = client().post("/mutate", content=body)
    assert reply.json()["response"]["allowed"] is True


def test_it_is_healthy_without_a_cluster() -> None:
    webhook = client()
    assert webhook.get("/healthz").status_code == webhook.get("/readyz").status_code == 200
    assert webhook.get("/mutate").status_code == 405
