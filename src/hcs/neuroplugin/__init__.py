"""The neuromorphic plugin: a device plugin, the neural service over HTTP, and NeuralTask objects."""
