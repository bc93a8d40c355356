"""Which node and which devices a pod gets: pure functions from a snapshot and a request to a plan or its refusals.

Start reading at :mod:`hcs.placement.engine`.
"""
