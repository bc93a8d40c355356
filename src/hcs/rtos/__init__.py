"""RTOS guests: what a container's CPU and memory settings become when the container is a guest of a hypervisor.

Pure: the OCI runtime, the planner on the command line, admission and the router call the same functions.
"""
