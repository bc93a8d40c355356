"""The command line: ``hcs``, also as ``kubectl hcs``.

stdout is data, stderr is talk. Exit codes: 0 done, 1 failed, 2 wrong usage, 124 timeout, 130 interrupted.
"""
