"""The kubelet's gRPC interfaces for devices: method names and the fields we use.

Source of the numbers: the public API descriptions ``deviceplugin/v1beta1`` and ``podresources/v1`` of Kubernetes
(Apache-2.0).
"""

from typing import Final

from hcs.protobuf import Messages, define

API_VERSION: Final = "v1beta1"
REGISTRATION: Final = "v1beta1.Registration"
DEVICE_PLUGIN: Final = "v1beta1.DevicePlugin"
POD_RESOURCES: Final = "v1.PodResourcesLister"

MESSAGES: Final[Messages] = define(
    "v1beta1",
    {
        "Empty": {},
        "DevicePluginOptions": {"pre_start_required": "1 bool", "get_preferred_allocation_available": "2 bool"},
        "RegisterRequest": {
            "version": "1 string",
            "endpoint": "2 string",
            "resource_name": "3 string",
            "options": "4 DevicePluginOptions",
        },
        "NUMANode": {"ID": "1 int64"},
        "TopologyInfo": {"nodes": "1 repeated NUMANode"},
        "Device": {"ID": "1 string", "health": "2 string", "topology": "3 TopologyInfo"},
        "ListAndWatchResponse": {"devices": "1 repeated Device"},
        "ContainerPreferredAllocationRequest": {
            "available_deviceIDs": "1 repeated string",
            "must_include_deviceIDs": "2 repeated string",
            "allocation_size": "3 int32",
        },
        "PreferredAllocationRequest": {"container_requests": "1 repeated ContainerPreferredAllocationRequest"},
        "ContainerPreferredAllocationResponse": {"deviceIDs": "1 repeated string"},
        "PreferredAllocationResponse": {"container_responses": "1 repeated ContainerPreferredAllocationResponse"},
        "ContainerAllocateRequest": {"devices_ids": "1 repeated string"},
        "AllocateRequest": {"container_requests": "1 repeated ContainerAllocateRequest"},
        "Mount": {"container_path": "1 string", "host_path": "2 string", "read_only": "3 bool"},
        "DeviceSpec": {"container_path": "1 string", "host_path": "2 string", "permissions": "3 string"},
        "CDIDevice": {"name": "1 string"},
        "ContainerAllocateResponse": {
            "envs": "1 map",
            "mounts": "2 repeated Mount",
            "devices": "3 repeated DeviceSpec",
            "annotations": "4 map",
            "cdi_devices": "5 repeated CDIDevice",
        },
        "AllocateResponse": {"container_responses": "1 repeated ContainerAllocateResponse"},
        "PreStartContainerRequest": {"devices_ids": "1 repeated string"},
        "PreStartContainerResponse": {},
    },
)

POD_MESSAGES: Final[Messages] = define(
    "v1",
    {
        "ListPodResourcesRequest": {},
        "ListPodResourcesResponse": {"pod_resources": "1 repeated PodResources"},
        "PodResources": {"name": "1 string", "namespace": "2 string", "containers": "3 repeated ContainerResources"},
        "ContainerResources": {
            "name": "1 string",
            "devices": "2 repeated ContainerDevices",
            "dynamic_resources": "5 repeated DynamicResource",
        },
        "ContainerDevices": {"resource_name": "1 string", "device_ids": "2 repeated string"},
        "DynamicResource": {
            "claim_name": "2 string",
            "claim_namespace": "3 string",
            "claim_resources": "4 repeated ClaimResource",
        },
        "ClaimResource": {
            "cdi_devices": "1 repeated CDIDevice",
            "driver_name": "2 string",
            "pool_name": "3 string",
            "device_name": "4 string",
        },
        "CDIDevice": {"name": "1 string"},
    },
)
