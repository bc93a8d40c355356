"""The client side of micad: its wire protocol, its consoles, and what is recorded about each guest on this machine."""
