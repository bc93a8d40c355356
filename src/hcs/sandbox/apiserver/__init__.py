"""The embedded Kubernetes API server of the sandbox: a closed list of kinds and verbs, faithful where we look."""

from hcs.sandbox.apiserver.attempts import User
from hcs.sandbox.apiserver.server import ApiServer, Settings, kubeconfig, running

__all__ = ["ApiServer", "Settings", "User", "kubeconfig", "running"]
