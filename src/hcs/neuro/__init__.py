"""Spiking hardware as a shared resource: boards, core rectangles, tenants, routes, tasks. Pure."""
