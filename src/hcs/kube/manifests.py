"""Create whole manifests as they are written, with every field, not only those our structs declare.

For setting up (CRDs, policies, webhooks, profiles) and for the demo; programs that run in a cluster use the typed
resources.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from lightkube import ApiError, AsyncClient
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import PatchType

_KINDS: Final = {
    "Namespace": ("namespaces", False),
    "ServiceAccount": ("serviceaccounts", True),
    "Service": ("services", True),
    "Pod": ("pods", True),
    "ConfigMap": ("configmaps", True),
    "Secret": ("secrets", True),
    "ResourceQuota": ("resourcequotas", True),
    "Job": ("jobs", True),
    "Node": ("nodes", False),
    "PriorityClass": ("priorityclasses", False),
    "CustomResourceDefinition": ("customresourcedefinitions", False),
    "MutatingWebhookConfiguration": ("mutatingwebhookconfigurations", False),
    "ValidatingAdmissionPolicy": ("validatingadmissionpolicies", False),
    "ValidatingAdmissionPolicyBinding": ("validatingadmissionpolicybindings", False),
    "ClusterRole": ("clusterroles", False),
    "ClusterRoleBinding": ("clusterrolebindings", False),
    "Role": ("roles", True),
    "RoleBinding": ("rolebindings", True),
    "ComputeNode": ("computenodes", False),
    "RuntimeProfile": ("runtimeprofiles", False),
    "ExchangeRate": ("exchangerates", False),
    "NeuralTask": ("neuraltasks", True),
}


class UnknownKindError(ValueError):
    """A manifest of a kind this module has no path for."""


def read_manifests(path: Path) -> Iterator[dict[str, Any]]:
    """The documents of a YAML file, or of all ``*.yaml`` files of a folder in order of name.

    A folder's ``kustomization.yaml`` is left out: it lists the others for kubectl and is no object itself.
    """
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    for file in files:
        if path.is_dir() and file.name == "kustomization.yaml":
            continue
        for document in yaml.safe_load_all(file.read_text()):
            if document:
                yield document


async def create(
    client: AsyncClient, manifest: dict[str, Any], *, namespace: str = "default", dry_run: bool = False
) -> dict[str, Any]:
    """Create an object.

    Args:
        client: the connection.
        manifest: the whole object; it is sent as it is.
        namespace: where namespaced objects go that name none.
        dry_run: only see what would become of it.

    Raises:
        UnknownKindError: no path is known for the kind.
        ApiError: the server refused it.
    """
    resource, metadata = _resource(manifest), dict(manifest["metadata"])
    if _KINDS[manifest["kind"]][1]:
        metadata.setdefault("namespace", namespace)
    created: dict[str, Any] = dict(await client.create(resource({**manifest, "metadata": metadata}), dry_run=dry_run))
    return created


async def create_or_replace(client: AsyncClient, manifest: dict[str, Any], *, namespace: str = "default") -> None:
    """Create an object, or merge the manifest into the one that is there.

    Raises:
        UnknownKindError: no path is known for the kind.
        ApiError: the server refused it.
    """
    try:
        await create(client, manifest, namespace=namespace)
    except ApiError as error:
        if error.status.code != 409:
            raise
        where = {"namespace": manifest["metadata"].get("namespace", namespace)} if _KINDS[manifest["kind"]][1] else {}
        await client.patch(
            _resource(manifest), manifest["metadata"]["name"], manifest, patch_type=PatchType.MERGE, **where
        )


def _resource(manifest: dict[str, Any]) -> Any:
    if manifest.get("kind") not in _KINDS:
        raise UnknownKindError(f"cannot create kind {manifest.get('kind')!r}; known are {', '.join(sorted(_KINDS))}")
    return _generic(manifest["apiVersion"], manifest["kind"])


@cache
def _generic(api_version: str, kind: str) -> Any:
    group, _, version = api_version.rpartition("/")
    plural, namespaced = _KINDS[kind]
    make = create_namespaced_resource if namespaced else create_global_resource
    return make(group, version, kind, plural)
