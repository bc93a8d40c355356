"""A minimal Job controller: enough of batch/v1 that a pod which loses its card is made again somewhere else.

Known are parallelism, completions, backoffLimit and the restart policies OnFailure and Never. Left out are indexed
completions, suspension, deadlines, failure policies and clean-up after a time. One difference is meant: a pod that is
deleted or evicted never counts as a failure here, as if every Job had a failure policy that ignores disruptions.
"""
