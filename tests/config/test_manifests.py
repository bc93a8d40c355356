"""The YAML people apply: complete, labelled, and asking for as little as it can."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.clusters import CONFIG, real_binaries
from tests.config.configured import OPTIONAL, manifests

from hcs.model import names

OBJECTS = manifests() + manifests(*OPTIONAL)
WORKLOADS = [item for item in OBJECTS if item["kind"] in ("Deployment", "DaemonSet")]
KUBECTL = shutil.which("kubectl", path=os.pathsep.join([str(real_binaries() or ""), os.environ.get("PATH", "")]))
NODE_PROGRAMS = {"hcs-agent", "hcs-neuroplugin"}
"""Those that must be root on the node: the container runtime's partner, and the kubelet's."""


def title(item: dict[str, Any]) -> str:
    return f"{item['kind']}/{item['metadata']['name']}"


def listed(folder: Path) -> list[Path]:
    """The files a kustomization applies."""
    resources: list[str] = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [folder / resource for resource in resources]


def test_two_calls_apply_everything() -> None:
    files = {path for path in CONFIG.rglob("*.yaml") if path.name != "kustomization.yaml"} - {
        CONFIG / name for name in OPTIONAL
    }
    assert {*listed(CONFIG), *listed(CONFIG / "profiles")} == files


def test_no_call_applies_objects_of_a_kind_it_defines() -> None:
    """kubectl looks up all kinds before it creates the first."""
    together = [item for path in listed(CONFIG) for item in yaml.safe_load_all(path.read_text())]
    assert not [title(item) for item in together if item["apiVersion"].startswith(f"{names.GROUP}/")]


@pytest.mark.skipif(KUBECTL is None, reason="no kubectl")
@pytest.mark.parametrize("folder", [CONFIG, CONFIG / "profiles"], ids=lambda folder: folder.name)
def test_kubectl_reads_it_as_we_do(folder: Path) -> None:
    built = subprocess.run([str(KUBECTL), "kustomize", str(folder)], check=True, capture_output=True, text=True)
    ours = [item for path in listed(folder) for item in yaml.safe_load_all(path.read_text())]
    assert sorted(map(title, yaml.safe_load_all(built.stdout))) == sorted(map(title, ours))


@pytest.mark.parametrize("item", OBJECTS, ids=title)
def test_every_object_says_what_it_belongs_to(item: dict[str, Any]) -> None:
    assert item["metadata"]["labels"]["app.kubernetes.io/part-of"] == "hetero-compute-router"


@pytest.mark.parametrize("item", OBJECTS, ids=title)
def test_every_namespaced_object_lives_in_ours(item: dict[str, Any]) -> None:
    # A built-in role can be bound only where it is.
    builtin = item["kind"] == "RoleBinding" and item["roleRef"]["name"].startswith("extension-apiserver-")
    if item["metadata"]["name"].startswith("volcano-"):
        assert item["metadata"]["namespace"] == "volcano-system"  # where Volcano looks for it
        return
    assert item["metadata"].get("namespace", names.NAMESPACE) == ("kube-system" if builtin else names.NAMESPACE)


@pytest.mark.parametrize("workload", WORKLOADS, ids=title)
def test_programs_run_with_as_little_as_they_can(workload: dict[str, Any]) -> None:
    spec = workload["spec"]["template"]["spec"]
    for container in spec["containers"]:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert container["resources"]["requests"].keys() >= {"cpu", "memory"}
        if workload["metadata"]["name"] in NODE_PROGRAMS:
            continue
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any("hostPath" in volume for volume in spec.get("volumes") or ())
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()


@pytest.mark.parametrize("item", [o for o in OBJECTS if o["kind"] in ("Role", "ClusterRole")], ids=title)
def test_no_role_holds_a_wildcard_or_a_way_up(item: dict[str, Any]) -> None:
    for rule in item["rules"]:
        words = {*rule.get("apiGroups", ()), *rule.get("resources", ()), *rule["verbs"]}
        assert "*" not in words
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
        assert "secrets" not in rule.get("resources", ()) or rule.get("resourceNames"), "secrets by name alone"


def test_the_webhook_can_hurt_nobody_else() -> None:
    [webhook] = next(o for o in OBJECTS if o["kind"] == "MutatingWebhookConfiguration")["webhooks"]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["timeoutSeconds"] <= 5
    assert webhook["sideEffects"] == "None"
    assert webhook["matchConditions"]
    [spared] = webhook["namespaceSelector"]["matchExpressions"]
    assert set(spared["values"]) == {"kube-system", names.NAMESPACE}
    [rule] = webhook["rules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
