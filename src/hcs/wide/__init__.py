"""Wide-area planning: which cluster, which kind of card, when, for a whole queue of jobs.

Pure. A snapshot of queue and fleet goes in, a plan comes out; the controller and the simulator run the same code. Times
are whole milliseconds, sizes whole bytes.
"""
