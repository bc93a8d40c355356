"""API servers to apply our manifests to: the sandbox's always, a real one where its binaries are installed.

Both know the same users. The real one authorises by RBAC, so that what our service accounts are given is tried as well.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import yaml

from hcs.model import names
from hcs.process.certificates import Authority
from hcs.process.serving import Endpoint
from hcs.sandbox.apiserver.server import Settings, running

CONFIG = Path(__file__).parents[2] / "config"
_PR_SET_PDEATHSIG = 1
REAL_PROGRAMS = ("etcd", "kube-apiserver")
NO_REAL_SERVER = "no real Kubernetes: no etcd and kube-apiserver in KUBEBUILDER_ASSETS or /usr/local/kubebuilder/bin"
ACCOUNTS = ("injector", "router", "healer")
TOKENS = "\n".join(
    [
        'admin,admin,admin,"system:masters"',
        'alice,alice,alice,"devs"',
        *(
            f'{account},system:serviceaccount:hcs-system:hcs-{account},{account},"system:serviceaccounts,system:'
            'serviceaccounts:hcs-system"'
            for account in ACCOUNTS
        ),
        'stranger,system:serviceaccount:default:hcs-router,stranger,"system:serviceaccounts"',
        "",
    ]
)
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
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
}
"""Kinds the sandbox does not serve: it starts our programs itself."""

Object = dict[str, Any]


class Cluster:
    """One API server and a client for each of its users."""

    def __init__(self, kind: str, url: str, authority: bytes, route: Callable[[str, str], None]) -> None:
        """``route`` makes the server find a webhook's service at a loopback address."""
        self.kind, self.url, self.authority, self.route = kind, url, authority, route
        self._context = ssl.create_default_context(cadata=authority.decode())
        self._clients: dict[str, httpx2.Client] = {}

    def as_user(self, user: str) -> httpx2.Client:
        if user not in self._clients:
            self._clients[user] = httpx2.Client(
                base_url=self.url,
                verify=self._context,
                headers={"Authorization": f"Bearer {user}"},
                timeout=20,
                trust_env=False,
            )
        return self._clients[user]

    @property
    def admin(self) -> httpx2.Client:
        return self.as_user("admin")

    def kubeconfig(self, user: str, folder: Path) -> Path:
        (folder / "authority.crt").write_bytes(self.authority)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "t", "cluster": {"server": self.url, "certificate-authority": str(folder / "authority.crt")}}
            ],
            "users": [{"name": "t", "user": {"token": user}}],
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "current-context": "t",
        }
        path = folder / f"{user}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def apply(self, objects: Iterable[Object]) -> None:
        """Create what this server serves and does not have yet."""
        for item in objects:
            path = (PATHS | (ON_REAL_ALONE if self.kind == "real" else {})).get(item["kind"])
            if path is None:
                assert item["kind"] in ON_REAL_ALONE, f"no server of these tests knows {item['kind']}"
                continue
            path = path.format(namespace=item["metadata"].get("namespace"))
            if item.get("apiVersion", "").startswith(f"{names.GROUP}/"):
                eventually(lambda served=path: self.admin.get(served).status_code == 200)
            reply = self.admin.post(path, json=item)
            assert reply.status_code in (201, 409), f"{item['kind']} {item['metadata']['name']}: {reply.text}"

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def manifests(*files: str) -> list[Object]:
    """All objects of our YAML files, in order; without files those of every file."""
    paths = [CONFIG / name for name in files] or sorted(
        path for path in CONFIG.rglob("*.yaml") if path.name != "kustomization.yaml"
    )
    return [item for path in paths for item in yaml.safe_load_all(path.read_text()) if item]


def eventually(check: Callable[[], Any], seconds: float = 30) -> Any:
    """Wait until a check gives something: a real server reads policies and webhooks through a cache."""
    end = time.monotonic() + seconds
    while True:
        if found := check():
            return found
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)


@contextlib.contextmanager
def sandbox(folder: Path) -> Iterator[Cluster]:
    """The sandbox's API server, in a thread."""
    (folder / "tokens.csv").write_text(TOKENS)
    with running(Settings(folder, tokens=folder / "tokens.csv")) as server:

        def route(service: str, url: str) -> None:
            server.cluster.services[service] = url

        cluster = Cluster("sandbox", server.url, server.authority.pair.certificate, route)
        try:
            yield cluster
        finally:
            cluster.close()


def real_binaries() -> Path | None:
    """The folder with a real etcd and kube-apiserver, if this machine has one."""
    for folder in (os.environ.get("KUBEBUILDER_ASSETS"), "/usr/local/kubebuilder/bin"):
        if folder and all((Path(folder) / program).exists() for program in REAL_PROGRAMS):
            return Path(folder)
    return None


@contextlib.contextmanager
def real(binaries: Path, folder: Path) -> Iterator[Cluster]:
    """A real etcd and kube-apiserver on loopback, stopped afterwards."""
    client, peer, secure = (_free_port() for _ in range(3))
    (folder / "tokens.csv").write_text(TOKENS)
    authority = Authority.load_or_create(folder)
    certificate, key = authority.issue(["127.0.0.1", "localhost"]).write(folder, "apiserver")
    subprocess.run(["openssl", "genrsa", "-out", str(folder / "sa.key"), "2048"], check=True, capture_output=True)
    etcd = {
        "data-dir": folder / "etcd",
        "listen-client-urls": f"http://127.0.0.1:{client}",
        "advertise-client-urls": f"http://127.0.0.1:{client}",
        "listen-peer-urls": f"http://127.0.0.1:{peer}",
        "initial-advertise-peer-urls": f"http://127.0.0.1:{peer}",
        "initial-cluster": f"default=http://127.0.0.1:{peer}",
        "unsafe-no-fsync": "true",
        "log-level": "warn",
    }
    apiserver = {
        "etcd-servers": f"http://127.0.0.1:{client}",
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": secure,
        "tls-cert-file": certificate,
        "tls-private-key-file": key,
        "cert-dir": folder,
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": folder / "sa.key",
        "service-account-signing-key-file": folder / "sa.key",
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

        cluster = Cluster("real", f"https://127.0.0.1:{secure}", authority.pair.certificate, route)

        def ready() -> bool:
            assert server.poll() is None, (folder / "kube-apiserver.log").read_text()[-2000:]
            with contextlib.suppress(httpx2.HTTPError):
                namespaces = "/api/v1/namespaces/default"
                return cluster.admin.get("/readyz").text == "ok" and cluster.admin.get(namespaces).status_code == 200
            return False

        try:
            eventually(ready, 60)
            yield cluster
        finally:
            cluster.close()


@contextlib.contextmanager
def _process(folder: Path, program: Path, options: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [f"--{key}={value}" for key, value in options.items()]
    with (folder / f"{program.name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), *arguments], stdout=log, stderr=log, cwd=folder, preexec_fn=_die_with_parent
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _die_with_parent() -> None:
    """Leave nothing behind when the tests themselves are killed; a real API server without its etcd ignores SIGTERM."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _free_port() -> int:
    with Endpoint().listen() as probe:
        return int(probe.getsockname()[1])


class InThread:
    """An asyncio program in a thread of its own; stopped by cancellation."""

    def __init__(self, program: Callable[[], Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(program())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
