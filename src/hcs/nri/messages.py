"""NRI's messages, as far as we use them; runtimes may send more, which is skipped.

Source of the numbers: ``pkg/api/api.proto`` of containerd/nri, and ttrpc's envelope (both Apache-2.0).
"""

from typing import Final

from hcs.protobuf import Messages, define

PLUGIN_SERVICE: Final = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE: Final = "nri.pkg.api.v1alpha1.Runtime"

RUN_POD: Final = 1
CREATE: Final = 4
START: Final = 6
REMOVE: Final = 11
VALIDATE: Final = 14

EVENTS: Final = {
    RUN_POD: "RunPodSandbox",
    2: "StopPodSandbox",
    3: "RemovePodSandbox",
    CREATE: "CreateContainer",
    5: "PostCreateContainer",
    START: "StartContainer",
    7: "PostStartContainer",
    8: "UpdateContainer",
    9: "PostUpdateContainer",
    10: "StopContainer",
    REMOVE: "RemoveContainer",
    12: "UpdatePodSandbox",
    13: "PostUpdatePodSandbox",
    VALIDATE: "ValidateContainerAdjustment",
}
"""Method names by event. Before NRI 0.12 those without an answer come as ``StateChange`` with the event's number."""

ENVELOPE: Final[Messages] = define(
    "ttrpc",
    {
        "Request": {"service": "1 string", "method": "2 string", "payload": "3 bytes", "timeout_nano": "4 int64"},
        "Status": {"code": "1 int32", "message": "2 string"},
        "Response": {"status": "1 Status", "payload": "2 bytes"},
    },
)

MESSAGES: Final[Messages] = define(
    "nri",
    {
        "RegisterPlugin": {"plugin_name": "1 string", "plugin_idx": "2 string"},
        "Configure": {
            "runtime_name": "2 string",
            "runtime_version": "3 string",
            "request_timeout": "5 int64",
            "NRI_version": "6 string",
        },
        "Configured": {"events": "2 int32"},
        "Synchronize": {"pods": "1 repeated Pod", "containers": "2 repeated Container", "more": "3 bool"},
        "Synchronized": {"more": "2 bool"},
        "Event": {"pod": "1 Pod", "container": "2 Container"},
        "StateChange": {"event": "1 int32", "pod": "2 Pod", "container": "3 Container"},
        "Created": {"adjust": "1 Adjustment"},
        "Validate": {
            "pod": "1 Pod",
            "container": "2 Container",
            "adjust": "3 Adjustment",
            "plugins": "6 repeated PluginInstance",
        },
        "Validated": {"reject": "1 bool", "reason": "2 string"},
        "PluginInstance": {"name": "1 string", "index": "2 string"},
        "Pod": {
            "id": "1 string",
            "name": "2 string",
            "uid": "3 string",
            "namespace": "4 string",
            "annotations": "6 map",
        },
        "Container": {
            "id": "1 string",
            "pod_sandbox_id": "2 string",
            "name": "3 string",
            "state": "4 int32",
            "annotations": "6 map",
            "args": "7 repeated string",
            "env": "8 repeated string",
            "mounts": "9 repeated Mount",
        },
        "Mount": {
            "destination": "1 string",
            "type": "2 string",
            "source": "3 string",
            "options": "4 repeated string",
        },
        "KeyValue": {"key": "1 string", "value": "2 string"},
        "Device": {"path": "1 string", "type": "2 string", "major": "3 int64", "minor": "4 int64"},
        "CDIDevice": {"name": "1 string"},
        "Linux": {"devices": "1 repeated Device"},
        "Adjustment": {
            "annotations": "2 map",
            "mounts": "3 repeated Mount",
            "env": "4 repeated KeyValue",
            "linux": "6 Linux",
            "CDI_devices": "8 repeated CDIDevice",
            "args": "9 repeated string",
        },
    },
)
