"""A device plugin with a real kubelet and a real containerd: what only those two know, like when they ask and for what.

The kubelet runs alone, without an API server, in mount and network settings of its own, and starts a static pod.
"""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from tests.clusters import real_binaries
from tests.deviceplugin.test_plugin import SPIKES, Spikes, units
from tests.nri.containerd import IMAGE, Containerd, RealPod, lacking, real_containerd
from tests.protobuf import every, text
from tests.waiting import until

from hcs.deviceplugin.plugin import DevicePlugin
from hcs.deviceplugin.podresources import Holder, PodResources, held
from hcs.deviceplugin.resource import Grant, HostDevice

BINARIES = real_binaries("kubelet")
MISSING = lacking() or ("" if BINARIES is not None else "no real Kubernetes: no kubelet in KUBEBUILDER_ASSETS")

pytestmark = [
    pytest.mark.needs_containerd,
    pytest.mark.xdist_group("containerd"),
    pytest.mark.skipif(bool(MISSING), reason=MISSING or "-"),
]

CONFIGURATION = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://{folder}/ctrd.sock
staticPodPath: {folder}/static
podLogsDir: {folder}/logs
volumePluginDir: {folder}/volumes
enableServer: false
healthzPort: 0
syncFrequency: 1s
failCgroupV1: false
failSwapOn: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
cgroupDriver: cgroupfs
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
evictionHard: {{memory.available: "1Mi"}}
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
"""
POD = f"""
apiVersion: v1
kind: Pod
metadata: {{name: one, namespace: default}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: {IMAGE}
      imagePullPolicy: Never
      command: [/bin/sleep, "3600"]
      resources: {{limits: {{{SPIKES}: 3}}}}
"""
# Its directory for plugins is fixed, and it writes kernel settings: both are covered up for this process alone.
START = """
mkdir -p /var/lib/kubelet/device-plugins
mount --bind {folder}/device-plugins /var/lib/kubelet/device-plugins
for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys \
  kernel/keys/root_maxbytes; do
  copy={folder}/setting.$(basename $name)
  cat /proc/sys/$name > $copy
  mount --bind $copy /proc/sys/$name
done
exec {kubelet} --config={folder}/kubelet.yaml --root-dir={folder}/kubelet --cert-dir={folder}/pki --hostname-override=n1
"""


class Chips(Spikes):
    """Gives what is really there."""

    async def allocate(self, ids: tuple[str, ...]) -> Grant:
        given = await super().allocate(ids)
        return Grant(env=given.env, devices=(HostDevice("/dev/zero", "/dev/chip"),))


class RealKubelet:
    """A kubelet's process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("static", "logs", "volumes", "device-plugins", "kubelet"):
            (folder / name).mkdir()
        (folder / "kubelet.yaml").write_text(CONFIGURATION.format(folder=folder))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        script = START.format(folder=self._folder, kubelet=f"{BINARIES}/kubelet")
        with open(self._folder / "kubelet.log", "ab") as log:
            self._process = subprocess.Popen(["unshare", "-m", "bash", "-c", script], stdout=log, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


async def _container(containerd: Containerd) -> str:
    async def running() -> bool:
        return bool(every(await containerd.call("ListContainers", [(1, [(2, [(1, 1)])])]), 1))

    await until(running)
    (found,) = every(await containerd.call("ListContainers", [(1, [(2, [(1, 1)])])]), 1)
    return text(found, 1)


def test_units_are_given_known_by_name_kept_through_a_restart_and_released(folder: Path) -> None:
    """Takes seconds, for a real kubelet starts twice; what the other tests believe of it stands or falls here."""

    async def whole() -> None:
        async with real_containerd(folder) as containerd:
            kubelet, chips = RealKubelet(folder), Chips()
            pod_resources = PodResources(folder / "kubelet" / "pod-resources" / "kubelet.sock")
            plugin = DevicePlugin(
                chips, directory=folder / "device-plugins", pod_resources=pod_resources, preference=True
            )
            await plugin.publish(units(8))
            own = folder / "device-plugins" / f"hcs-{SPIKES.replace('/', '-')}.sock"
            kubelet.start()
            running = asyncio.create_task(plugin.run())
            try:
                await plugin.registered.wait()
                pod = folder / "static" / "one.yaml"
                await until(lambda: plugin.watchers > 0)
                pod.write_text(POD)
                await until(lambda: bool(chips.started))
                ids, holder = chips.started[0]
                assert ids == {"k0005", "k0006", "k0007"}, "the kubelet followed the advice"
                assert holder == Holder("default", "one-n1", "main")
                container = await _container(containerd)
                shown = (await RealPod(containerd, "", []).run(container, "/usr/bin/env"))[1]
                (line,) = [line for line in shown.splitlines() if line.startswith("SPIKES=")]
                assert set(line.removeprefix("SPIKES=").split(",")) == ids
                assert (await RealPod(containerd, "", []).run(container, "/bin/ls", "/dev/chip"))[0] == 0
                assert set(held(await pod_resources.list(), SPIKES)) == ids

                async def known() -> bool:
                    return set(held(await pod_resources.list(), SPIKES)) == ids

                before = _made(folder / "device-plugins" / "kubelet.sock")
                kubelet.kill()
                kubelet.start()
                await until(lambda: _made(folder / "device-plugins" / "kubelet.sock") > before)
                await until(lambda: _made(own) > before and plugin.watchers > 0)
                await until(known)  # its checkpoint still knows, but for a moment it lists no pods
                pod.unlink()

                async def released() -> bool:
                    return not held(await pod_resources.list(), SPIKES)

                await until(released)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                kubelet.kill()

    asyncio.run(whole())


def _made(path: Path) -> int:
    """When a socket was made, in nanoseconds; 0 where there is none. Its inode may be that of an earlier one."""
    try:
        return os.stat(path).st_ctime_ns
    except OSError:
        return 0
