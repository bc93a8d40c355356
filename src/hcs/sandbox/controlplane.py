"""A real Kubernetes control plane for the sandbox: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

Takes the place of the embedded API server, scheduler driver and Job controller when a folder with the four programs is
given. They run as a cluster runs them: RBAC on, every connection over TLS, etcd and the kubelet open to the API server
alone, our scheduler under the service account and with the configuration of ``config/router.yaml``. Nothing is left out
that our code leans on; only the addresses are loopback's.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from hcs.process.certificates import Authority
from hcs.sandbox.supervisor import Health, Program

PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_LOOPBACK: Final = ("127.0.0.1", "localhost")
_NAMES: Final = (*_LOOPBACK, "kubernetes", "kubernetes.default", "kubernetes.default.svc")

Options = Mapping[str, object]


class MissingProgramsError(FileNotFoundError):
    """A folder lacks programs of a control plane; the message says which."""


class Ports(msgspec.Struct, frozen=True):
    """Where on loopback the four listen; fixed, so that a restarted program is found again."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int


class ControlPlane:
    """The four programs: certificates in ``directory/pki``, data in ``directory/etcd``."""

    def __init__(self, binaries: Path, directory: Path, authority: Authority, ports: Ports) -> None:
        """Prepare: certificates are written, nothing runs.

        Args:
            binaries: the folder with the four programs.
            directory: the sandbox's; ``tokens.csv`` in it says who may speak to the API server.
            authority: vouches for all of them.
            ports: where they listen.
        """
        self._binaries, self._directory, self._authority, self._ports = binaries, directory, authority, ports
        self._pki = directory / "pki"
        self.authority_file = self._pki / "ca.crt"
        self._ca = str(self.authority_file)
        authority.pair.write(self._pki, "ca")
        for name, names, client in (
            ("etcd", _LOOPBACK, True),  # its members are each other's clients
            ("apiserver", _NAMES, False),
            ("apiserver-client", _LOOPBACK, True),
            ("serviceaccounts", _LOOPBACK, False),
            ("kube-controller-manager", _LOOPBACK, False),
            ("kube-scheduler", _LOOPBACK, False),
        ):
            authority.issue(names, client=client).write(self._pki, name)

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self._ports.apiserver}"

    def etcd(self) -> Program:
        """The store. It answers nobody without a certificate, so nobody asks whether it is ready."""
        certificate, key = self._pair("etcd")
        client, peer = f"https://127.0.0.1:{self._ports.etcd}", f"https://127.0.0.1:{self._ports.etcd_peer}"
        return self._program(
            "etcd",
            {
                "data-dir": self._directory / "etcd",
                "listen-client-urls": client,
                "advertise-client-urls": client,
                "cert-file": certificate,
                "key-file": key,
                "client-cert-auth": "true",
                "trusted-ca-file": self._ca,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": f"default={peer}",
                "peer-cert-file": certificate,
                "peer-key-file": key,
                "peer-client-cert-auth": "true",
                "peer-trusted-ca-file": self._ca,
                "unsafe-no-fsync": "true",  # the sandbox's directory does not outlive a power cut anyway
                "log-level": "warn",
            },
        )

    def apiserver(self) -> Program:
        """The API server, ready when its own roles are there."""
        certificate, key = self._pair("apiserver")
        client, client_key = self._pair("apiserver-client")
        account, account_key = self._pair("serviceaccounts")
        return self._program(
            "kube-apiserver",
            {
                "etcd-servers": f"https://127.0.0.1:{self._ports.etcd}",
                "etcd-cafile": self._ca,
                "etcd-certfile": client,
                "etcd-keyfile": client_key,
                "bind-address": "127.0.0.1",
                "advertise-address": "127.0.0.1",
                "endpoint-reconciler-type": "none",
                "secure-port": self._ports.apiserver,
                "tls-cert-file": certificate,
                "tls-private-key-file": key,
                "cert-dir": self._pki,
                "authorization-mode": "RBAC",
                "token-auth-file": self._directory / "tokens.csv",
                "service-account-issuer": "https://kubernetes.default.svc",
                "service-account-key-file": account,
                "service-account-signing-key-file": account_key,
                "service-cluster-ip-range": "10.96.0.0/24",
                "allow-privileged": "true",
                "kubelet-certificate-authority": self._ca,
                "kubelet-client-certificate": client,
                "kubelet-client-key": client_key,
                "kubelet-preferred-address-types": "InternalIP",
            },
            health=f"{self.server}/readyz",
        )

    def controller_manager(self, kubeconfig: Path) -> Program:
        """Jobs, garbage, namespaces, quota, service accounts, and the taints of nodes."""
        certificate, key = self._pair("kube-controller-manager")
        return self._program(
            "kube-controller-manager",
            {
                "kubeconfig": kubeconfig,
                "authentication-kubeconfig": kubeconfig,
                "authorization-kubeconfig": kubeconfig,
                "bind-address": "127.0.0.1",
                "secure-port": self._ports.controller_manager,
                "tls-cert-file": certificate,
                "tls-private-key-file": key,
                "leader-elect": "false",
                "use-service-account-credentials": "true",
                "service-account-private-key-file": self._pair("serviceaccounts")[1],
                "root-ca-file": self._ca,
            },
            health=f"https://127.0.0.1:{self._ports.controller_manager}/healthz",
        )

    def scheduler(self, kubeconfig: Path, configuration: Path) -> Program:
        """kube-scheduler with our extender; ``kubeconfig`` is the service account's that it has in a cluster."""
        certificate, key = self._pair("kube-scheduler")
        return self._program(
            "kube-scheduler",
            {
                "config": configuration,
                "authentication-kubeconfig": kubeconfig,
                "authorization-kubeconfig": kubeconfig,
                "bind-address": "127.0.0.1",
                "secure-port": self._ports.scheduler,
                "tls-cert-file": certificate,
                "tls-private-key-file": key,
            },
            health=f"https://127.0.0.1:{self._ports.scheduler}/healthz",
        )

    def _pair(self, name: str) -> tuple[str, str]:
        return str(self._pki / f"{name}.crt"), str(self._pki / f"{name}.key")

    def _program(self, name: str, options: Options, *, health: str = "") -> Program:
        return Program(
            name,
            tuple(f"--{option}={value}" for option, value in options.items()),
            executable=str(self._binaries / name),
            health=Health(health, self._authority.pair.certificate) if health else None,
        )


def check_programs(binaries: Path) -> None:
    """See that a folder has all four programs.

    Raises:
        MissingProgramsError: it has not.
    """
    missing = [name for name in PROGRAMS if not os.access(binaries / name, os.X_OK)]
    if missing:
        raise MissingProgramsError(f"folder {binaries} lacks {', '.join(missing)}; it must hold {', '.join(PROGRAMS)}")


def version(binaries: Path) -> str:
    """What the API server of a folder calls itself, such as ``Kubernetes v1.36.2``.

    Raises:
        MissingProgramsError: programs are missing, or the API server cannot be run.
    """
    check_programs(binaries)
    program = binaries / "kube-apiserver"
    try:
        told = subprocess.run([program, "--version"], check=True, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingProgramsError(f"{program} does not run here: {error}") from error
    return told.stdout.strip()


def scheduler_configuration(shipped: Mapping[str, Any], kubeconfig: Path) -> dict[str, Any]:
    """The shipped KubeSchedulerConfiguration with the kubeconfig that a pod would not need."""
    return {**shipped, "clientConnection": {"kubeconfig": str(kubeconfig)}}
