"""The healer: takes sick cards out of service and moves the work on them. It acts; :mod:`hcs.health` decides."""
