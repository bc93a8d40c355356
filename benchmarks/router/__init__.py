"""How many pods a second the router decides, on how many nodes, in how much memory."""
