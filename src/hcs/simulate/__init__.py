"""What would happen: the router's own placement, driven through time that does not pass. Pure."""
