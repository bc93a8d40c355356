"""``hcs demo``: a machine room on a laptop, and five scenes that each check their own claim."""
