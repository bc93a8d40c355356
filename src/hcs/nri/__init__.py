"""The Node Resource Interface (NRI): how containerd and CRI-O ask a plugin what to change in a container.

``frames`` cuts and joins bytes, ``plugin`` holds the connection, ``runtimes`` knows what each runtime can do,
``adjusting`` turns an :class:`hcs.inject.adjustments.Adjustment` into the wire's words, ``guard`` is the second opinion
where the runtime has none of its own.
"""
