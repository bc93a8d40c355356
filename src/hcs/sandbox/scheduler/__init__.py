"""The sandbox's stand-in for kube-scheduler: it behaves towards an extender exactly as the real one does.

A driver, not a scheduler to use in earnest: it knows the few node checks our scenes need, and every habit of the real
one that an extender can trip over (assumed pods, asynchronous binds, back-off, the wake-up by its own condition write).
What it imitates is listed in the modules, each habit beside the code that has it.
"""
