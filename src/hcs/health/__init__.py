"""Health of cards, pure: what a fault means, when a card is quarantined, who is evicted, where they resume."""
