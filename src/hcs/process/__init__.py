"""What every long-running program of ours has in common: logging, serving, readiness, a clean end."""
