"""An emulated mica daemon with an emulated hypervisor beneath it: a stand-in for micad on Xen, for tests and demos.

It is written from the protocol's description alone and shares nothing with the client, so that the two check each
other. Each guest really runs: its firmware file is executed as a process of this machine, with its console on a pts.
"""
