"""The sandbox's kubelet: it really runs each container's command, as a process of this machine.

Everything above it is production code, so what a pod sees here is what ``inject()`` says and nothing else. It has no
root, no namespaces and no container runtime: a container's file tree is a private directory of links, and the few
things a kernel or loader would do inside a container are done to the environment instead.

Left out, and without effect where a pod has them: probes, hooks, CPU and memory limits, users and capabilities, pod
networks, side-car init containers. Volumes and variables it cannot make are refused with a sentence, not ignored.
"""
