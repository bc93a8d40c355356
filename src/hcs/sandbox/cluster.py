"""A whole sandbox: what it consists of, in which order it starts, and what each part is told.

Everything is an own process under one directory: the API server, the scheduler driver, the Job controller, the process
kubelet, and, from the production code unchanged, router, injector, healer and one agent per emulated node. With a
folder of Kubernetes programs the first three are the real ones, and our RBAC is applied as it is shipped.
"""

import base64
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import yaml

from hcs.kube.connection import connect
from hcs.kube.manifests import create_or_replace, read_manifests
from hcs.measure.emulated_backend import write_speed
from hcs.model import names
from hcs.model.devices import Link
from hcs.process.certificates import Authority
from hcs.sandbox import images
from hcs.sandbox.controlplane import ControlPlane, Ports, scheduler_configuration
from hcs.sandbox.files import config_directory, examples_directory
from hcs.sandbox.fleet import DEMO, Fleet, FleetError
from hcs.sandbox.identities import (
    ADMINISTRATOR,
    Identity,
    grants,
    kubeconfig,
    make_identities,
    token_file,
    write_kubeconfig,
    write_private,
)
from hcs.sandbox.ports import HeldPorts
from hcs.sandbox.readiness import kinds_served, nodes_untainted, pods_admitted
from hcs.sandbox.speeds import hidden_speed
from hcs.sandbox.supervisor import Program, StartError, Supervisor, inherited_environment, start_together
from hcs.ura.catalogue import load_catalogue
from hcs.vendors import emulated

_FOLDERS: Final = ("ready", "logs", "pki", "apiserver", "pod-logs", "images", "containers", "nodes", "shared", "users")
PROFILES: Final = DEMO.with_name("profiles.yaml")
_PERMISSIONS: Final = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
"""What is taken of our programs' manifests; the programs themselves the sandbox starts."""
_SOCKET_PATH_BYTES: Final = 107
_UUID_PREFIX: Final = {"nvidia": "GPU", "ascend": "NPU", "cambricon": "MLU"}


class Sandbox:
    """One sandbox; ``directory`` holds all it writes."""

    def __init__(self, directory: Path, fleet: Fleet, kubernetes: Path | None = None) -> None:
        """Prepare; nothing runs before :meth:`start`.

        Args:
            directory: where everything is written.
            fleet: the emulated nodes and cards.
            kubernetes: folder with the programs of a real control plane; None takes the embedded one.
        """
        self.directory, self.fleet, self._kubernetes = directory, fleet, kubernetes
        self.supervisor = Supervisor(directory, inherited_environment())
        self._identities: dict[str, Identity] = {}
        self._authority: Authority | None = None
        self._server = ""
        self._ports = HeldPorts()
        self._control_plane: ControlPlane | None = None

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.user(ADMINISTRATOR)

    def user(self, name: str) -> Path:
        """The kubeconfig of an identity of :mod:`hcs.sandbox.identities`."""
        return self.directory / "users" / f"{name}.yaml"

    def cards(self, node: str) -> Path:
        """The folder of a node's emulated card files."""
        return self.directory / "nodes" / node / "cards"

    async def start(self, said: Callable[[str], None]) -> None:
        """Start everything; ``said`` hears one word per part that is ready.

        Raises:
            StartError: a program did not become ready; the message has the end of its log.
        """
        self._check_room_for_sockets()
        for folder in _FOLDERS:
            (self.directory / folder).mkdir(parents=True, exist_ok=True)
        self._authority = Authority.load_or_create(self.directory / "apiserver")
        self._identities = make_identities()
        write_private(self.directory / "tokens.csv", token_file(self._identities))
        self._make_cards()
        images.build_images(
            self.directory / "images",
            runtimes={profile["spec"]["image"]: profile["spec"]["vendor"] for profile in read_manifests(PROFILES)},
            code=sorted(examples_directory().glob("*.py")),
        )
        said("emulated cards and images")
        if self._kubernetes is None:
            self._server = await self._start_embedded_server()
        else:
            self._server = await self._start_real_server(self._kubernetes)
        self._write_kubeconfigs()
        said("API server")
        await self._define()
        ports = {name: self._ports.take() for name in ("router", "injector")}
        self._write_scheduler_configuration(ports["router"])
        certificate, key = self._authority.issue(["127.0.0.1", "localhost"]).write(self.directory / "pki", "injector")
        programs = [
            self._hcs("injector", "--host", "127.0.0.1", "--port", str(ports["injector"]),
                      "--tls-cert-file", str(certificate), "--tls-key-file", str(key)),
            self._hcs("router", *self._as("router"), "--port", str(ports["router"])),
            self._hcs("healer", *self._as("healer")),
            *(self._agent(node.name) for node in self.fleet.nodes if node.cards),
            *self._scheduler_and_controllers(),
            self._kubelet(),
        ]  # fmt: skip
        await start_together(self.supervisor, programs, said)
        await self._register_webhook(ports["injector"])
        if self._control_plane is not None:
            await self._until_usable()
        said("admission")

    def _check_room_for_sockets(self) -> None:
        """A Unix socket's path has a small limit, and a deep temporary directory leaves no room for an agent's."""
        longest = max(len(os.fsencode(self._socket(node.name))) for node in self.fleet.nodes)
        if longest > _SOCKET_PATH_BYTES:
            raise StartError(
                f"an agent's socket would have a path of {longest} bytes, Linux allows {_SOCKET_PATH_BYTES}; "
                "use a temporary directory with a shorter name, like TMPDIR=/tmp"
            )

    def _socket(self, node: str) -> Path:
        return self.directory / "nodes" / node / "agent.sock"

    async def stop(self) -> None:
        """End all programs."""
        await self.supervisor.stop()
        self._ports.release()

    def _make_cards(self) -> None:
        catalogue = load_catalogue()
        for node in self.fleet.nodes:
            folder = self.cards(node.name)
            folder.mkdir(parents=True, exist_ok=True)
            index = dict.fromkeys(names.VENDOR_WORDS, 0)
            for cards in node.cards:
                model = catalogue.find(cards.model, cards.vendor)
                if model.vram is None:
                    raise FleetError(f"node {node.name}: nobody has written down how much memory {cards.model} has")
                first, count = index[cards.vendor], cards.count * model.devices_per_board
                together = [_identifier(cards.vendor, node.name, number) for number in range(first, first + count)]
                for _ in range(count):
                    number = index[cards.vendor]
                    index[cards.vendor] += 1
                    path = folder / f"{cards.vendor}{number}.card"
                    if self.fleet.hidden_speeds is not None:
                        write_speed(path, hidden_speed(model, f"{self.fleet.hidden_speeds}:{node.name}:{path.name}"))
                    links = [
                        Link(peer, cards.link) for peer in together if cards.link and peer != together[number - first]
                    ]
                    emulated.write_place(path, numa=cards.numa, links=links)
                    emulated.create_card(
                        path,
                        vendor=cards.vendor,
                        model=model.model,
                        uuid=_identifier(cards.vendor, node.name, number),
                        index=number,
                        total_bytes=model.vram,
                        bus_id=f"0000:{16 * (number + 1):02x}:00.0",
                    )

    async def _start_embedded_server(self) -> str:
        port = self._ports.take()
        facts = await self.supervisor.start(
            Program(
                "apiserver",
                (
                    "-m",
                    "hcs.sandbox.apiserver",
                    "--data",
                    str(self.directory / "apiserver"),
                    "--port",
                    str(port),
                    "--token-auth-file",
                    str(self.directory / "tokens.csv"),
                    "--pod-log-dir",
                    str(self.directory / "pod-logs"),
                    "--ready-file",
                    "{ready}",
                ),
            )
        )
        return str(facts["url"])

    async def _start_real_server(self, binaries: Path) -> str:
        assert self._authority is not None
        ports = Ports(*(self._ports.take() for _ in Ports.__struct_fields__))
        plane = self._control_plane = ControlPlane(binaries, self.directory, self._authority, ports)
        await start_together(self.supervisor, [plane.etcd(), plane.apiserver()], lambda _: None)
        return plane.server

    def _scheduler_and_controllers(self) -> list[Program]:
        configuration = self.directory / "scheduler.yaml"
        if self._control_plane is None:
            scheduler = self._module("scheduler", *self._as("scheduler"), "--config", str(configuration))
            return [scheduler, self._module("jobs", *self._as("jobs"))]
        return [
            self._control_plane.scheduler(self.user("router"), configuration),
            self._control_plane.controller_manager(self.user("controller-manager")),
        ]

    def _write_kubeconfigs(self) -> None:
        assert self._authority is not None
        for identity in self._identities.values():
            config = kubeconfig(identity, self._server, self._authority.pair.certificate)
            write_kubeconfig(self.user(identity.name), config)

    async def _define(self) -> None:
        """Create our kinds, policies and profiles; on a real control plane also who may do what."""
        client = connect(str(self.kubeconfig))
        config = config_directory()
        try:
            if self._control_plane is not None:
                for manifest in [*read_manifests(config / "namespace.yaml"), *grants(self._identities)]:
                    await create_or_replace(client, manifest)
                for manifest in read_manifests(config):
                    if manifest["kind"] in _PERMISSIONS:
                        await create_or_replace(client, manifest)
            for manifest in [*read_manifests(config / "crds"), *read_manifests(config / "policies.yaml")]:
                await create_or_replace(client, manifest)
            await kinds_served(client)
            for manifest in read_manifests(PROFILES):
                await create_or_replace(client, manifest)
        finally:
            await client.close()

    async def _until_usable(self) -> None:
        """Wait until pods that ask for compute are admitted, and every node takes them."""
        client = connect(str(self.kubeconfig))
        try:
            await pods_admitted(client)
            await nodes_untainted(client)
        finally:
            await client.close()

    async def _register_webhook(self, port: int) -> None:
        """The shipped webhook configuration, with an address instead of a service."""
        assert self._authority is not None
        client = connect(str(self.kubeconfig))
        try:
            for manifest in read_manifests(config_directory() / "webhook.yaml"):
                if manifest["kind"] != "MutatingWebhookConfiguration":
                    continue
                for webhook in manifest["webhooks"]:
                    webhook["clientConfig"] = {
                        "url": f"https://127.0.0.1:{port}/mutate",
                        "caBundle": base64.b64encode(self._authority.pair.certificate).decode(),
                    }
                await create_or_replace(client, manifest)
        finally:
            await client.close()

    def _write_scheduler_configuration(self, port: int) -> None:
        """The shipped KubeSchedulerConfiguration, with the extender's port of this sandbox."""
        for manifest in read_manifests(config_directory() / "router.yaml"):
            text = yaml.safe_dump(manifest)
            if manifest.get("kind") == "ConfigMap" and "KubeSchedulerConfiguration" in text:
                manifest = yaml.safe_load(next(iter(manifest["data"].values())))
            if manifest.get("kind") == "KubeSchedulerConfiguration":
                for extender in manifest["extenders"]:
                    extender["urlPrefix"] = f"http://127.0.0.1:{port}"
                if self._control_plane is not None:
                    manifest = scheduler_configuration(manifest, self.user("router"))
                (self.directory / "scheduler.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
                return
        raise LookupError("config/router.yaml holds no KubeSchedulerConfiguration")

    def _agent(self, node: str) -> Program:
        home = self.directory / "nodes" / node
        arguments = (
            "--node", node,
            "--socket", str(self._socket(node)),
            "--state-dir", str(home / "state"),
            "--emulated-cards", str(self.cards(node)),
        )  # fmt: skip
        return self._hcs("agent", *self._as("agent"), *arguments, name=f"agent-{node}")

    def _kubelet(self) -> Program:
        nodes = []
        for node in self.fleet.nodes:
            socket_path = self._socket(node.name)
            nodes += ["--node", f"{node.name}={socket_path}" if node.cards else node.name]
        return self._module(
            "kubelet",
            "--kubeconfig", str(self.user("kubelet")),
            "--root", str(self.directory / "containers"),
            "--images", str(self.directory / "images"),
            "--pod-log-dir", str(self.directory / "pod-logs"),
            *nodes,
            *self._log_server(),
        )  # fmt: skip

    def _log_server(self) -> list[str]:
        """A real API server asks the kubelet for logs; the embedded one reads the files itself."""
        if self._control_plane is None:
            return []
        assert self._authority is not None
        certificate, key = self._authority.issue(["127.0.0.1", "localhost"]).write(self.directory / "pki", "kubelet")
        return [
            "--log-port", str(self._ports.take()),
            "--tls-cert-file", str(certificate),
            "--tls-key-file", str(key),
            "--client-ca-file", str(self._control_plane.authority_file),
        ]  # fmt: skip

    def _as(self, identity: str) -> tuple[str, str]:
        return "--kubeconfig", str(self.user(identity))

    @staticmethod
    def _hcs(part: str, *arguments: str, name: str = "") -> Program:
        words = ("agent", "run") if part == "agent" else (part,)
        return Program(name or part, ("-m", "hcs", *words, *arguments, "--ready-file", "{ready}"))

    @staticmethod
    def _module(part: str, *arguments: str) -> Program:
        return Program(part, ("-m", f"hcs.sandbox.{part}", *arguments, "--ready-file", "{ready}"))


def _identifier(vendor: str, node: str, number: int) -> str:
    """A UUID in the form the vendor's tools print, the same at every start."""
    value = uuid.uuid5(uuid.NAMESPACE_DNS, f"{number}.{node}.emulated.{names.DOMAIN}")
    return f"{_UUID_PREFIX.get(vendor, vendor.upper())}-{value}"
