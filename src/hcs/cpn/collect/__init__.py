"""What is known of each cluster, kept fresh beside the decisions: its API by list and watch, its metrics by asking."""
