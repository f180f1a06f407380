"""A real Kubernetes control plane for tests and the demo: start one, use it, leave nothing behind.

`ControlPlane.start()` gives etcd, kube-apiserver, the controllers, the scheduler and simulated nodes, all
on loopback, all in one temporary folder. `use_best()` prefers a cluster that is there already (see
`sources`). The user's own kubectl configuration is never read or written.
"""

from tests.support.controlplane.audit import Write
from tests.support.controlplane.plane import ControlPlane, ControlPlaneError, Outside, wait_until
from tests.support.controlplane.sources import use_best

__all__ = ["ControlPlane", "ControlPlaneError", "Outside", "Write", "use_best", "wait_until"]
