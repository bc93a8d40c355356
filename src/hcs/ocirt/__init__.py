"""``hcs-rtos``: an OCI runtime whose containers are RTOS guests, started through micad."""
