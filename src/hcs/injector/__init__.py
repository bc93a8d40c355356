"""The admission webhook: reads a pod's request, refuses nonsense with a sentence, writes defaults. Stateless."""
