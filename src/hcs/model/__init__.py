"""The values everything else speaks in: quantities, pods, devices, requests, allocations, refusals.

Pure, and importing nothing of ours: every other layer may import the model, the model imports none of them.
"""
