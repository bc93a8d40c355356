"""Webhooks named by service: the sandbox has no cluster network, so a map says where they really listen."""

import base64
import ssl
from pathlib import Path

import pytest
from tests.contract.harness import Api, Webhook, pod, refused

from hcs.process.certificates import service_names
from hcs.sandbox.apiserver import Settings, running

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        pytest.param(service_names("hcs-injector", "hcs-system"), "", id="its-own-certificate"),
        pytest.param(["127.0.0.1", "localhost"], "tls: failed to verify certificate", id="one-for-another-name"),
    ],
)
def test_a_service_is_called_where_the_map_says_under_its_own_name(
    tmp_path: Path, names: list[str], message: str
) -> None:
    hook = Webhook(lambda _: {})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*hook.authority.issue(names).write(tmp_path, "hook"))
    hook.use(context)
    service = {"namespace": "hcs-system", "name": "hcs-injector", "path": "/mutate"}
    webhook = {
        "name": "pods.hcs.example",
        "clientConfig": {
            "service": service,
            "caBundle": base64.b64encode(hook.authority.pair.certificate).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    settings = Settings(tmp_path / "data", services={"hcs-system/hcs-injector": hook.url})
    with running(settings) as server:
        api = Api("sandbox", server.url, tmp_path / "data" / "ca.crt")
        api.create(CONFIGURATIONS, {"metadata": {"name": "hcs"}, "webhooks": [webhook]})
        answer = api.post(PODS, pod("a"))
        api.close()
    hook.close()
    if message:
        assert message in refused(answer, 500, "InternalError")["message"]
    else:
        assert answer.status_code == 201
        assert hook.paths == ["/mutate?timeout=10s"]


def test_a_service_nobody_mapped(tmp_path: Path) -> None:
    webhook = {
        "name": "pods.hcs.example",
        "clientConfig": {"service": {"namespace": "default", "name": "nobody", "path": "/m"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    with running(Settings(tmp_path)) as server:
        api = Api("sandbox", server.url, tmp_path / "ca.crt")
        api.create(CONFIGURATIONS, {"metadata": {"name": "hcs"}, "webhooks": [webhook]})
        body = refused(api.post(PODS, pod("a")), 500, "InternalError")
        api.close()
    assert body["message"].endswith('Post "https://nobody.default.svc:443/m?timeout=10s": service "nobody" not found')
