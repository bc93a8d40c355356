"""What a card really does: timed work on it, and the figures that follow."""
