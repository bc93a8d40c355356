"""Who may speak to the sandbox's API server: one administrator and one service account per program.

Names and groups are those a real cluster gives to service accounts of ``hcs-system``, so that the admission policies
apply unchanged.
"""

import base64
import secrets
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from hcs.model import names

ADMINISTRATOR: Final = "admin"
PLAIN_USER: Final = "user"
_COMPONENTS: Final = ("router", "injector", "agent", "healer")
_CLUSTER_COMPONENTS: Final = {
    "scheduler": "system:kube-scheduler",
    "kubelet": "system:node:sandbox",
    "jobs": "system:serviceaccount:kube-system:job-controller",
    "controller-manager": "system:kube-controller-manager",
}


class Identity(msgspec.Struct, frozen=True):
    """A user of the API server and the token it proves itself with."""

    name: str
    user: str
    groups: tuple[str, ...]
    token: str


def make_identities() -> dict[str, Identity]:
    """Fresh identities with random tokens, by name."""
    serviceaccounts = ("system:serviceaccounts", f"system:serviceaccounts:{names.NAMESPACE}", "system:authenticated")
    wanted = {
        ADMINISTRATOR: ("sandbox-admin", ("system:masters", "system:authenticated")),
        PLAIN_USER: ("sandbox-user", ("system:authenticated",)),
        **{part: (f"system:serviceaccount:{names.NAMESPACE}:hcs-{part}", serviceaccounts) for part in _COMPONENTS},
        **{part: (user, ("system:authenticated",)) for part, user in _CLUSTER_COMPONENTS.items()},
    }
    return {name: Identity(name, user, groups, secrets.token_urlsafe(24)) for name, (user, groups) in wanted.items()}


def token_file(identities: dict[str, Identity]) -> str:
    """The static token file's text: ``token,user,uid,"group1,group2"`` a line."""
    return "".join(
        f'{identity.token},{identity.user},{identity.name},"{",".join(identity.groups)}"\n'
        for identity in identities.values()
    )


def grants(identities: dict[str, Identity]) -> list[dict[str, Any]]:
    """What a real control plane must be told: the process kubelet serves several nodes under one name.

    A node authorizer would ask for one name a node; the role is the one that every kubelet had before there was one.
    """
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "hcs-sandbox-kubelet"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": identities["kubelet"].user}],
        }
    ]


def kubeconfig(identity: Identity, server: str, authority: bytes, name: str = "hcs-sandbox") -> dict[str, Any]:
    """A kubeconfig for one identity.

    Args:
        identity: who.
        server: the API server's address.
        authority: its certificate authority, PEM.
        name: of cluster, user and context.
    """
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()},
            }
        ],
        "users": [{"name": name, "user": {"token": identity.token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read; it holds a token."""
    path.touch(mode=0o600)
    path.write_text(text)


def write_kubeconfig(path: Path, config: dict[str, Any]) -> None:
    """Write a kubeconfig that only its owner can read."""
    write_private(path, yaml.safe_dump(config, sort_keys=False))


def merge_context(path: Path, addition: dict[str, Any]) -> str | None:
    """Add a context to a person's kubeconfig and make it current, as ``kind`` does.

    Returns:
        The context that was current before.
    """
    existing: dict[str, Any] = (yaml.safe_load(path.read_text()) if path.exists() else None) or {}
    existing = existing or {"apiVersion": "v1", "kind": "Config"}
    for kind in ("clusters", "users", "contexts"):
        added = addition[kind]
        taken = {entry["name"] for entry in added}
        existing[kind] = [entry for entry in existing.get(kind) or [] if entry.get("name") not in taken] + added
    before: str | None = existing.get("current-context")
    existing["current-context"] = addition["current-context"]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_kubeconfig(path, existing)
    return before if before != addition["current-context"] else None


def remove_context(path: Path, name: str, restore: str | None) -> None:
    """Take a context out of a person's kubeconfig again; ``restore`` becomes the current one."""
    if not path.exists():
        return
    existing: dict[str, Any] = yaml.safe_load(path.read_text()) or {}
    for kind in ("clusters", "users", "contexts"):
        existing[kind] = [entry for entry in existing.get(kind) or [] if entry.get("name") != name]
    if existing.get("current-context") == name:
        existing["current-context"] = restore or ""
    write_kubeconfig(path, existing)
