"""What to try, for each reason a pod can be refused for: one sentence, a change somebody could make now."""

from typing import Final

from hcs.model import names

HINTS: Final = {
    "AgentSilent": "kubectl -n hcs-system get pods -o wide shows whether the node's agent runs",
    "AcuBeyondAnyCard": f"ask for {names.TOTAL_ACU} over several cards",
    "AcuTooHigh": f"ask for less {names.ACU}, or for {names.TOTAL_ACU} over several cards",
    "CapacityTaken": "wait, end another pod, or ask for less; hcs neuro top shows who holds what",
    "CapacityTooSmall": "ask for less, split the work into several pods, or add nodes with larger boards",
    "CardsTaken": "wait, end another pod, or ask for less; hcs devices shows who holds what",
    "CardsUnavailable": "hcs devices shows which cards are sick or held by others, and why",
    "CheckpointNotPortable": f'set annotation {names.PORTABLE}: "true" if other vendors can read the checkpoint',
    "DerivedRateOnly": f"measure the card, or name it in annotation {names.MODELS}",
    "DeviceForeign": "end what holds the cards outside HCS, or remove its device plugin from the node",
    "DeviceQuarantined": "hcs devices shows the reason; take the entry out of spec.quarantine if mended",
    "DeviceUnhealthy": "hcs devices shows what is wrong; several cards for one job must all be healthy",
    "Fragmented": "ask for fewer cores, or wait until pods end; hcs neuro top shows the boards",
    "ModelNotAllowed": f"name another model in {names.MODELS}, or set {names.SUBSTITUTION}: auto",
    "NoCards": "nodes without cards can be left out with a nodeSelector; nothing else to do",
    "NoRate": f"ask by {names.VRAM} or {names.CARDS}, choose another {names.WORKLOAD}, or measure the card",
    "NoRatedFigure": f"ask in {names.TOTAL_ACU} or {names.CARDS} instead",
    "NoSuchRuntime": f"kubectl get runtimeprofiles shows what is offered; mend annotation {names.RUNTIME}",
    "NodeCordoned": "kubectl uncordon the node",
    "NodeNotReady": "kubectl describe the node; its HCS agent may be down",
    "RuntimeTooOld": "a node with a newer container runtime, or no entry point for this vendor",
    "RuntimeFailsOpen": "the runtime's default validator, hcs guard beside it, or whole cards",
    "NodeSelectorMismatch": "mend the pod's nodeSelector, or label the node",
    "NotManaged": "run the HCS agent on the node",
    "RuntimeNotOffered": f"kubectl get runtimeprofiles shows what is offered; mend annotation {names.RUNTIME}",
    "TooFewCards": "ask for fewer cards, or split the work into several pods",
    "VendorNotAllowed": f"name another vendor in {names.VENDORS}, or set {names.SUBSTITUTION}: auto",
    "VramBeyondAnyCard": f"ask for less {names.VRAM} on each of several {names.CARDS}",
    "VramTooSmall": f"ask for less {names.VRAM} on each card, or add nodes with larger cards",
    "WrongScheduler": f"set schedulerName: {names.SCHEDULER}",
}
"""Reason → hint. Reasons that are missing carry what to do in their own sentence."""


def hint_for(reason: str) -> str:
    """What to try, or nothing where the sentence itself says it."""
    return HINTS.get(reason, "")
