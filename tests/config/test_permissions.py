"""Each of our service accounts can do what it must and nothing beside it. Only a real server has RBAC to ask."""

import pytest
from tests.clusters import Cluster

ALLOWED = {
    "injector": [
        ("get", "", "secrets", "hcs-system/hcs-injector-tls"),
        ("patch", "", "secrets", "hcs-system/hcs-injector-tls"),
        ("get", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "hcs-injector"),
        ("patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "hcs-injector"),
    ],
    "healer": [
        ("list", "ai.compute", "computenodes", ""),
        ("watch", "ai.compute", "computenodes", ""),
        ("patch", "ai.compute", "computenodes", "node-1"),
        ("list", "", "pods", ""),
        ("watch", "", "pods", ""),
        ("create", "", "pods/eviction", "default/train-1"),
        ("get", "batch", "jobs", "default/train"),
        ("create", "", "events", "default/train-1"),
        ("patch", "", "events", "default/train-1"),
    ],
    "router": [
        ("list", "ai.compute", "computenodes", ""),
        ("patch", "", "pods", "default/train-1"),
        ("patch", "", "pods/status", "default/train-1"),
        ("create", "", "pods/binding", "default/train-1"),
        ("create", "", "pods/eviction", "default/train-1"),
        ("watch", "", "nodes", ""),
        ("watch", "ai.compute", "exchangerates", ""),
        ("watch", "policy", "poddisruptionbudgets", ""),
        ("watch", "scheduling.x-k8s.io", "podgroups", ""),
        ("watch", "scheduling.volcano.sh", "podgroups", ""),
        ("watch", "coordination.k8s.io", "leases", "hcs-system/"),
        ("update", "coordination.k8s.io", "leases", "hcs-system/hcs-scheduler"),
    ],
    "cpn": [
        ("list", "ai.compute", "computenodes", ""),
        ("watch", "", "nodes", ""),
        ("watch", "", "pods", ""),
        ("get", "", "pods/log", "default/train-1"),
        ("get", "batch", "jobs", "default/train"),
        ("watch", "batch", "jobs", ""),
        ("create", "batch", "jobs", "default/"),
        ("patch", "batch", "jobs", "default/train"),
        ("delete", "batch", "jobs", "default/train"),
        ("create", "coordination.k8s.io", "leases", "hcs-system/"),
        ("update", "coordination.k8s.io", "leases", "hcs-system/hcs-cpn"),
    ],
}
FORBIDDEN = {
    "injector": [
        ("get", "", "secrets", "hcs-system/other"),
        ("create", "", "secrets", "hcs-system/hcs-injector-tls"),
        ("list", "", "secrets", "hcs-system/"),
        ("get", "", "secrets", "default/hcs-injector-tls"),
        ("patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "other"),
        ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""),
        ("get", "", "pods", "default/train-1"),
    ],
    "healer": [
        ("patch", "ai.compute", "computenodes/status", "node-1"),
        ("delete", "ai.compute", "computenodes", "node-1"),
        ("delete", "", "pods", "default/train-1"),
        ("patch", "", "pods", "default/train-1"),
        ("create", "", "pods/binding", "default/train-1"),
        ("get", "", "secrets", "default/any"),
        ("patch", "batch", "jobs", "default/train"),
    ],
    "router": [
        ("patch", "ai.compute", "computenodes", "node-1"),
        ("patch", "ai.compute", "computenodes/status", "node-1"),
        ("get", "", "secrets", "default/any"),
        ("create", "", "pods", "default/"),
        ("patch", "coordination.k8s.io", "leases", "hcs-system/node-1"),
    ],
    "cpn": [
        ("create", "", "pods", "default/"),
        ("delete", "", "pods", "default/train-1"),
        ("create", "", "pods/exec", "default/train-1"),
        ("get", "", "secrets", "default/any"),
        ("patch", "", "nodes", "node-1"),
        ("patch", "ai.compute", "computenodes", "node-1"),
        ("deletecollection", "batch", "jobs", "default/"),
        ("update", "coordination.k8s.io", "leases", "hcs-system/hcs-scheduler"),
        ("create", "coordination.k8s.io", "leases", "default/"),
    ],
}


def may(cluster: Cluster, account: str, verb: str, group: str, resource: str, place: str) -> bool:
    namespace, _, name = place.rpartition("/")
    kind, _, part = resource.partition("/")
    review = {
        "kind": "SubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": {
            "user": f"system:serviceaccount:hcs-system:hcs-{account}",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:hcs-system", "system:authenticated"],
            "resourceAttributes": {
                "verb": verb,
                "group": group,
                "resource": kind,
                "subresource": part,
                "namespace": namespace,
                "name": name,
            },
        },
    }
    reply = cluster.admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", json=review)
    assert reply.status_code == 201, reply.text
    return bool(reply.json()["status"]["allowed"])


@pytest.mark.parametrize("cluster", [pytest.param("real", marks=pytest.mark.real)], indirect=True)
@pytest.mark.parametrize("account", sorted(ALLOWED))
def test_an_account_can_do_what_it_must_and_nothing_beside(cluster: Cluster, account: str) -> None:
    missing = [right for right in ALLOWED[account] if not may(cluster, account, *right)]
    excess = [right for right in FORBIDDEN[account] if may(cluster, account, *right)]
    assert (missing, excess) == ([], [])
