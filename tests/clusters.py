"""API servers for tests: the sandbox's, and a real one where its programs are installed.

Both know the same users; the token of each is its name with ``-token``. The real one authorises by RBAC, so that what
our service accounts are given is tried as well. It takes seconds to start and is therefore shared by all tests of a
run; nothing of it outlives them, even when they are killed.
"""

import contextlib
import ctypes
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import yaml

from hcs.model import names
from hcs.process.certificates import Authority
from hcs.sandbox.apiserver import Settings, running

Object = dict[str, Any]
CONFIG = Path(__file__).parents[1] / "config"
REAL_PROGRAMS = ("etcd", "kube-apiserver")
NO_REAL_SERVER = "no real Kubernetes: no etcd and kube-apiserver in KUBEBUILDER_ASSETS or /usr/local/kubebuilder/bin"
ACCOUNTS = ("injector", "router", "healer", "cpn")
TOKENS = "\n".join(
    [
        'admin-token,admin,admin,"system:masters"',
        'alice-token,alice,alice-uid,"devs,readers"',
        *(
            f'{account}-token,system:serviceaccount:hcs-system:hcs-{account},{account},"system:serviceaccounts,system:'
            'serviceaccounts:hcs-system"'
            for account in ACCOUNTS
        ),
        'stranger-token,system:serviceaccount:default:hcs-router,stranger,"system:serviceaccounts"',
        "",
    ]
)
# It is our rules that shall hold these people back, not a missing permission.
PERMITTED = [
    {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{user}-may-do-everything"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    for user, name in (("alice", "alice"), ("stranger", "system:serviceaccount:default:hcs-router"))
]
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "RuntimeProfile": "/apis/ai.compute/v1alpha1/runtimeprofiles",
}
ON_REAL_ALONE = {
    "Service": "/api/v1/namespaces/{namespace}/services",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
}
"""Kinds the sandbox does not serve: it starts our programs itself."""

FELT_BY_OTHERS = (
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "CustomResourceDefinition",
)
"""What has to go again before other tests use the server, in this order."""

_PR_SET_PDEATHSIG = 1


class Cluster:
    """One API server, and a client for each of its users."""

    def __init__(
        self, kind: str, url: str, authority: Path, route: Callable[[str, str], None], compact: Callable[[], None]
    ) -> None:
        """Of a server that runs already.

        Args:
            kind: ``sandbox`` or ``real``.
            url: where it listens.
            authority: the file of the authority that vouches for it.
            route: makes the server find a webhook's service at a loopback address.
            compact: makes it forget all history.
        """
        self.kind, self.url, self.authority, self.route, self.compact = kind, url, authority, route, compact
        self._context = ssl.create_default_context(cafile=str(authority))
        self._clients: dict[str, httpx2.Client] = {}
        self._applied: list[Object] = []

    def as_user(self, user: str) -> httpx2.Client:
        if user not in self._clients:
            self._clients[user] = httpx2.Client(
                base_url=self.url,
                verify=self._context,
                headers={"Authorization": f"Bearer {user}-token"},
                timeout=20,
                trust_env=False,
            )
        return self._clients[user]

    @property
    def admin(self) -> httpx2.Client:
        return self.as_user("admin")

    def kubeconfig(self, user: str, folder: Path) -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "t", "cluster": {"server": self.url, "certificate-authority": str(self.authority)}}],
            "users": [{"name": "t", "user": {"token": f"{user}-token"}}],
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "current-context": "t",
        }
        path = folder / f"{user}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def apply(self, objects: Iterable[Object]) -> None:
        """Create what this server serves and does not have yet."""
        for item in objects:
            path = self._path(item)
            if path is None:
                continue
            if item.get("apiVersion", "").startswith(f"{names.GROUP}/"):
                eventually(lambda served=path: self.admin.get(served).status_code == 200)
            reply = self.admin.post(path, json=item)
            assert reply.status_code in (201, 409), f"{item['kind']} {item['metadata']['name']}: {reply.text}"
            self._applied.append(item)

    def withdraw(self) -> None:
        """Take back what was applied and would be felt by other tests, and wait until nobody feels it."""
        felt = [item for kind in FELT_BY_OTHERS for item in self._applied if item["kind"] == kind]
        self._applied.clear()
        for item in felt:
            self.admin.delete(f"{self._path(item)}/{item['metadata']['name']}")
        container = {"name": "c", "image": "i", "resources": {"limits": {names.VRAM: "1"}}}
        probe = {
            "metadata": {"name": "probe", "annotations": {names.ALLOCATION: ""}},
            "spec": {"containers": [container]},
        }
        pods = "/api/v1/namespaces/default/pods"
        if felt:
            eventually(lambda: self.admin.post(pods, params={"dryRun": "All"}, json=probe).status_code == 201)

    def _path(self, item: Object) -> str | None:
        path = (PATHS | (ON_REAL_ALONE if self.kind == "real" else {})).get(item["kind"])
        assert path is not None or item["kind"] in ON_REAL_ALONE, f"no server of these tests knows {item['kind']}"
        return path and path.format(namespace=item["metadata"].get("namespace"))

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def eventually(check: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until a check gives something: for what a server does in the background, at its own pace."""
    end = time.monotonic() + seconds
    while True:
        if found := check():
            return found
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


@contextlib.contextmanager
def sandbox(folder: Path) -> Iterator[Cluster]:
    """The sandbox's API server, in a thread."""
    (folder / "tokens.csv").write_text(TOKENS)
    settings = Settings(folder, tokens=folder / "tokens.csv", pod_logs=folder / "logs", bookmark_seconds=0.5)
    with running(settings) as server:

        def route(service: str, url: str) -> None:
            server.cluster.services[service] = url

        with contextlib.closing(Cluster("sandbox", server.url, folder / "ca.crt", route, server.compact)) as cluster:
            yield cluster


def real_binaries(*programs: str) -> Path | None:
    """The folder with a real etcd and kube-apiserver, or with other programs, if this machine has one."""
    for folder in (os.environ.get("KUBEBUILDER_ASSETS"), "/usr/local/kubebuilder/bin"):
        if folder and all((Path(folder) / program).exists() for program in programs or REAL_PROGRAMS):
            return Path(folder)
    return None


@contextlib.contextmanager
def real(binaries: Path, folder: Path) -> Iterator[Cluster]:
    """A real etcd and kube-apiserver on loopback."""
    client, peer, secure = (free_port() for _ in range(3))
    (folder / "tokens.csv").write_text(TOKENS)
    authority = Authority.load_or_create(folder)
    certificate, key = authority.issue(["127.0.0.1", "localhost"]).write(folder, "apiserver")
    accounts_certificate, accounts_key = authority.issue(["localhost"]).write(folder, "accounts")
    store = f"http://127.0.0.1:{client}"
    etcd = {
        "data-dir": folder / "etcd",
        "listen-client-urls": store,
        "advertise-client-urls": store,
        "listen-peer-urls": f"http://127.0.0.1:{peer}",
        "initial-advertise-peer-urls": f"http://127.0.0.1:{peer}",
        "initial-cluster": f"default=http://127.0.0.1:{peer}",
        "unsafe-no-fsync": "true",
        "log-level": "warn",
    }
    apiserver = {
        "etcd-servers": store,
        "etcd-compaction-interval": "0",  # it forgets when told to
        "watch-cache-sizes": "secrets#0",  # and for secrets it has nothing to remember by
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": secure,
        "tls-cert-file": certificate,
        "tls-private-key-file": key,
        "cert-dir": folder,
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": accounts_certificate,
        "service-account-signing-key-file": accounts_key,
        "service-cluster-ip-range": "10.96.0.0/24",
        "authorization-mode": "RBAC",
        "token-auth-file": folder / "tokens.csv",
        "allow-privileged": "true",
        "endpoint-reconciler-type": "none",
        "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition",
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(_process(folder, binaries / "etcd", etcd))
        server = stack.enter_context(_process(folder, binaries / "kube-apiserver", apiserver))

        def route(service: str, url: str) -> None:
            """An ExternalName service leads to loopback; the port stands in the webhook's reference."""
            namespace, name = service.split("/")
            port = int(url.rpartition(":")[2])
            spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
            path = f"/api/v1/namespaces/{namespace}/services/{name}"
            patch = {"spec": {**spec, "selector": None, "clusterIP": None, "clusterIPs": None}}
            reply = cluster.admin.patch(path, json=patch, headers={"Content-Type": "application/merge-patch+json"})
            assert reply.status_code == 200, reply.text

        def compact() -> None:
            """A version of the API is a revision of the store."""
            version = cluster.admin.get("/api/v1/namespaces?limit=1").json()["metadata"]["resourceVersion"]
            reply = httpx2.post(f"{store}/v3/kv/compaction", json={"revision": version}, verify=False, trust_env=False)
            assert reply.status_code == 200, reply.text

        cluster = Cluster("real", f"https://127.0.0.1:{secure}", folder / "ca.crt", route, compact)

        def answers(user: str, path: str) -> bool:
            assert server.poll() is None, (folder / "kube-apiserver.log").read_text()[-2000:]
            with contextlib.suppress(httpx2.HTTPError):
                return cluster.as_user(user).get(path).status_code == 200
            return False

        with contextlib.closing(cluster):
            eventually(lambda: answers("admin", "/readyz") and answers("admin", "/api/v1/namespaces/default"))
            cluster.apply(PERMITTED)
            eventually(lambda: answers("alice", "/api/v1/pods") and answers("stranger", "/api/v1/pods"))
            yield cluster


@contextlib.contextmanager
def _process(folder: Path, program: Path, options: Object) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [f"--{key}={value}" for key, value in options.items()]
    with (folder / f"{program.name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), *arguments], stdout=log, stderr=log, cwd=folder, preexec_fn=_die_with_parent
        )
    try:
        yield process
    finally:
        process.kill()  # nobody will read its data again
        process.wait()


def _die_with_parent() -> None:
    """Leave nothing behind when the tests themselves are killed; a real API server without its etcd ignores SIGTERM."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
