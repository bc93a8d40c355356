"""The controller of many clusters: collect, predict, decide, dispatch, watch, learn."""
