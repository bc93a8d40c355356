"""Every name that crosses the wire: resources, annotations, the API group, labels and well-known values.

One list, so that the injector, the router, the agent, the healer and the command line cannot disagree on a spelling.
The domain ``ai.compute`` is the prefix of all of them.
"""

from typing import Final

DOMAIN: Final = "ai.compute"
GROUP: Final = "ai.compute"
VERSION: Final = "v1alpha1"

SCHEDULER: Final = "hcs-scheduler"
VOLCANO: Final = "volcano"  # binds by itself; its extender plug-in asks us, see docs/volcano.md
SCHEDULERS: Final = (SCHEDULER, VOLCANO)
NAMESPACE: Final = "hcs-system"
MANAGED_TAINT: Final = f"{DOMAIN}/managed"

# Resources a container may ask for.
VRAM: Final = f"{DOMAIN}/vram"  # bytes on each card
CARDS: Final = f"{DOMAIN}/cards"  # number of cards, default 1
ACU: Final = f"{DOMAIN}/acu"  # ACU on each card
FP16_TFLOPS: Final = f"{DOMAIN}/fp16-tflops"  # totals, rated and dense
FP32_TFLOPS: Final = f"{DOMAIN}/fp32-tflops"
INT8_TOPS: Final = f"{DOMAIN}/int8-tops"
TOTAL_ACU: Final = f"{DOMAIN}/total-acu"
TOTALS: Final = (FP16_TFLOPS, FP32_TFLOPS, INT8_TOPS, TOTAL_ACU)
RTOS_GUESTS: Final = f"{DOMAIN}/rtos-guests"  # admission writes it for a container that is an RTOS guest; always 1
REQUESTED: Final = (VRAM, CARDS, ACU, *TOTALS)

# Resources admission writes beside them, so that an ordinary ResourceQuota counts what is really asked.
TOTAL_VRAM: Final = f"{DOMAIN}/total-vram"
TOTAL_CARDS: Final = f"{DOMAIN}/total-cards"
CHARGED: Final = (TOTAL_VRAM, TOTAL_CARDS, TOTAL_ACU)

# Annotations people write on pods.
VENDORS: Final = f"{DOMAIN}/vendors"
MODELS: Final = f"{DOMAIN}/models"
WORKLOAD: Final = f"{DOMAIN}/workload"
SHARING: Final = f"{DOMAIN}/sharing"
SHARING_GROUP: Final = f"{DOMAIN}/sharing-group"
SUBSTITUTION: Final = f"{DOMAIN}/substitution"
PORTABLE: Final = f"{DOMAIN}/portable"
INTERCONNECT: Final = f"{DOMAIN}/interconnect"
FABRIC: Final = f"{DOMAIN}/fabric"
NUMA: Final = f"{DOMAIN}/numa"
DATA_SOURCE: Final = f"{DOMAIN}/data-source"
GANG: Final = f"{DOMAIN}/gang"
GANG_SIZE: Final = f"{DOMAIN}/gang-size"
SPIKING_AFFINITY: Final = f"{DOMAIN}/spiking-affinity"
RUNTIME: Final = f"{DOMAIN}/runtime"
CODE_IMAGE: Final = f"{DOMAIN}/code-image"
CHECKPOINT: Final = f"{DOMAIN}/checkpoint"
ENTRYPOINT_PREFIX: Final = f"{DOMAIN}/entrypoint."
REPAIRED: Final = f"{DOMAIN}/repaired"  # on a ComputeNode: {card: when}; the agent forgets the card's history
USER_ANNOTATIONS: Final = frozenset(
    {
        VENDORS,
        MODELS,
        WORKLOAD,
        SHARING,
        SHARING_GROUP,
        SUBSTITUTION,
        PORTABLE,
        INTERCONNECT,
        FABRIC,
        NUMA,
        DATA_SOURCE,
        GANG,
        GANG_SIZE,
        SPIKING_AFFINITY,
        RUNTIME,
        CODE_IMAGE,
        CHECKPOINT,
    }
)

# What people write on a pod that has an offer, never at its creation: "accept ID" or "decline ID".
SUBSTITUTION_ANSWER: Final = f"{DOMAIN}/substitution-answer"

# Scheduling gates admission writes; the router opens them.
ASK_GATE: Final = f"{DOMAIN}/ask"
GANG_GATE: Final = f"{DOMAIN}/gang"

# Node labels a site may set where its own labels say nothing about the network; see docs/topology.md.
ZONE_LABEL: Final = f"{DOMAIN}/zone"
FABRIC_LABEL: Final = f"{DOMAIN}/fabric"
RACK_LABEL: Final = f"{DOMAIN}/rack"
LINK_DOMAIN_LABEL: Final = f"{DOMAIN}/link-domain"

# A node label with a number: what the node costs, in any unit that is the same everywhere; see docs/placement.md.
COST_LABEL: Final = f"{DOMAIN}/cost"

# How other gang schedulers mark a pod as a member of a PodGroup; the values name the group.
COSCHEDULING_LABELS: Final = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",  # before the API had its own group
    "pod-group.scheduling.sigs.k8s.io/name",  # before there was an object at all
)
COSCHEDULING_SIZE: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
VOLCANO_ANNOTATIONS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
VOLCANO_TASK: Final = "volcano.sh/task-spec"
"""Annotation of a Volcano Job's pods: which of the job's tasks they are of."""

# Annotations only HCS writes; an admission policy holds everybody else to that.
ALLOCATION: Final = f"{DOMAIN}/allocation"
SUBSTITUTION_OFFER: Final = f"{DOMAIN}/substitution-offer"
ROUTE_REASON: Final = f"{DOMAIN}/route-reason"
RESUME: Final = f"{DOMAIN}/resume"
POKE: Final = f"{DOMAIN}/poke"  # the router touches it to wake a pending pod when only the fleet changed
OUR_ANNOTATIONS: Final = frozenset({ALLOCATION, SUBSTITUTION_OFFER, ROUTE_REASON, RESUME, POKE})

REQUIRED_PLUGINS: Final = "required-plugins.noderesource.dev"  # containerd's validator: refuse without our plugin
NRI_PLUGIN: Final = "hcs"

VENDOR_WORDS: Final = (
    "nvidia",
    "ascend",
    "cambricon",
    "hygon",
    "mthreads",
    "iluvatar",
    "metax",
    "enflame",
    "kunlunxin",
    "amd",
    "intel",
)
