"""What a scene plays on: the running sandbox, seen only through its API server, and a place to speak.

A scene makes *claims*. Each is checked at once and shown with a tick or a cross; one false claim makes the whole demo
end with exit 1. What a scene has found out goes into its *facts*, the machine-readable half of the story.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from lightkube import ApiError, AsyncClient
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from hcs.kube import manifests, resources
from hcs.kube.informer import Informer
from hcs.model.allocations import Allocation, allocation_of

T = TypeVar("T")


class ClaimFailedError(AssertionError):
    """Something a scene needs in order to go on did not happen; the message says what."""


class Claim(msgspec.Struct, frozen=True):
    """One thing the scene says is true."""

    text: str
    ok: bool


class Stage:
    """The sandbox as a scene sees it."""

    def __init__(self, client: AsyncClient, directory: Path, kubeconfig: Path, console: Console) -> None:
        """Prepare.

        Args:
            client: an administrator's connection.
            directory: the sandbox's directory, for the emulated cards.
            kubeconfig: for programs that are run as a person would.
            console: where the story is told.
        """
        self.client, self.directory, self.kubeconfig, self.console = client, directory, kubeconfig, console
        self.pods = Informer(client, resources.Pod)
        self.nodes = Informer(client, resources.ComputeNode, namespace=None)
        self._changed = asyncio.Event()
        self.pods.on_change(lambda *_: self._changed.set())
        self.nodes.on_change(lambda *_: self._changed.set())
        self.claims: list[Claim] = []
        self.facts: dict[str, Any] = {}
        self._followers: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Begin to follow the cluster."""
        self._followers = [asyncio.create_task(self.pods.run()), asyncio.create_task(self.nodes.run())]
        await asyncio.gather(self.pods.synced.wait(), self.nodes.synced.wait())

    async def close(self) -> None:
        """Stop following."""
        for follower in self._followers:
            follower.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)
        await self.client.close()

    def begin(self) -> None:
        """A new scene: no claims, no facts."""
        self.claims, self.facts = [], {}

    def say(self, text: str) -> None:
        """Tell one line of the story."""
        self.console.print(Padding(Text.from_markup(text), (0, 0, 0, 2)))

    def show(self, what: RenderableType) -> None:
        """Show a table."""
        self.console.print(Padding(what, (0, 0, 0, 2)))

    def claim(self, text: str, ok: bool) -> bool:
        """State something and check it."""
        self.claims.append(Claim(text, ok))
        mark = "[green]✓[/]" if ok else "[bold red]✗[/]"
        self.say(f"{mark} {text}")
        return ok

    async def until(self, what: str, look: Callable[[], T | None], *, seconds: float = 15.0) -> T:
        """Wait until ``look`` finds something, looking again at every change in the cluster.

        Raises:
            ClaimFailedError: it did not within ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while True:
            self._changed.clear()
            found = look()
            if found is not None and found is not False:
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                self.claims.append(Claim(what, False))
                raise ClaimFailedError(f"{what}: not within {seconds:g} s")
            try:
                await asyncio.wait_for(self._changed.wait(), min(left, 0.25))
            except TimeoutError:
                continue

    def pod(self, name: str) -> resources.Pod | None:
        """A pod of the default namespace."""
        return self.pods.get(name, "default")

    async def bound(self, name: str, *, seconds: float = 20.0) -> tuple[resources.Pod, Allocation]:
        """Wait until a pod is bound by us.

        Raises:
            ClaimFailedError: it was not in time.
        """

        def look() -> tuple[resources.Pod, Allocation] | None:
            pod = self.pod(name)
            allocation = allocation_of(pod) if pod is not None else None
            return (pod, allocation) if pod is not None and allocation is not None else None

        return await self.until(f"{name} is placed", look, seconds=seconds)

    async def logged(self, name: str, event: str, *, seconds: float = 20.0) -> dict[str, Any]:
        """Wait until the program in a pod has logged a JSON line with this ``event``; the newest such line.

        Raises:
            ClaimFailedError: it did not in time.
        """
        deadline = time.monotonic() + seconds
        while True:
            lines = [line for line in await self.log(name) if line.get("event") == event]
            if lines:
                return lines[-1]
            if time.monotonic() > deadline:
                self.claims.append(Claim(f"{name} logs {event}", False))
                raise ClaimFailedError(f"{name} logged no {event!r} within {seconds:g} s")
            await asyncio.sleep(0.1)

    async def log(self, name: str) -> list[dict[str, Any]]:
        """The JSON lines a pod has logged so far."""
        lines = []
        try:
            async for line in self.client.log(name, namespace="default"):
                try:
                    decoded = msgspec.json.decode(line)
                except msgspec.DecodeError:
                    continue
                if isinstance(decoded, dict):
                    lines.append(decoded)
        except ApiError as error:
            if error.status.code not in (400, 404):
                raise
        return lines

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create an object in namespace ``default``.

        Raises:
            ApiError: it was refused; the message is the server's.
        """
        return await manifests.create(self.client, manifest)

    async def remove(self, *names: str) -> None:
        """Delete pods and wait until they and what they held are gone."""
        for name in names:
            try:
                await self.client.delete(resources.Pod, name, namespace="default", grace_period=0)
            except ApiError as error:
                if error.status.code != 404:
                    raise
        await self.until("the pods are gone", lambda: all(self.pod(name) is None for name in names) or None)
