"""Hetero Compute Router: ask Kubernetes for compute instead of for a vendor's card."""

__version__ = "0.1.0"
