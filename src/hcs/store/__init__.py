"""What the wide-area controller must not forget: its queue, its clusters, what jobs have taught it. One sqlite file."""
