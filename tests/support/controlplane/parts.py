"""The command line of each part of a control plane, and the files that those lines name."""

import json
import secrets
import socket
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.controlplane.paths import AUDIT_POLICY

ADMIN = "kubernetes-admin"
USERS = (ADMIN, "system:kube-controller-manager", "system:kube-scheduler", "system:kwok")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One control plane's folder and the loopback ports it listens on."""

    folder: Path
    etcd_port: int
    etcd_peer_port: int
    api_port: int
    tokens: dict[str, str] = field(default_factory=lambda: {user: secrets.token_hex(16) for user in USERS})

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self.api_port}"

    @property
    def certificate(self) -> Path:
        """The chain that the API server makes for itself: its certificate, then the authority's."""
        return self.folder / "pki" / "apiserver.crt"

    @property
    def authority(self) -> Path:
        """The authority that signed it, taken from the certificate's chain."""
        return self.folder / "pki" / "ca.crt"

    @property
    def signing_key(self) -> Path:
        """The key that signs service account tokens."""
        return self.folder / "service-account.key"

    @property
    def token_file(self) -> Path:
        """The table of users that the API server knows from the start."""
        return self.folder / "tokens.csv"

    @property
    def audit_log(self) -> Path:
        """The log of writes."""
        return self.folder / "audit.log"

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """The configuration with which one of the first users reaches the API server."""
        return self.folder / f"{user.replace(':', '-')}.kubeconfig"


def new_layout(folder: Path) -> Layout:
    """Returns a layout on ports that nobody listens on at this moment."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        etcd, peer, api = (one.getsockname()[1] for one in sockets)
    return Layout(folder=folder, etcd_port=etcd, etcd_peer_port=peer, api_port=api)


def write_tokens(layout: Layout) -> None:
    """Writes the table of users; all of them may do everything, each under its own name."""
    rows = [f'{token},{user},{user},"system:masters"\n' for user, token in layout.tokens.items()]
    layout.token_file.touch(mode=0o600)
    layout.token_file.write_text("".join(rows))


def write_kubeconfigs(layout: Layout) -> None:
    """Writes the authority and one configuration per user, once the API server has made its chain."""
    begin = "-----BEGIN CERTIFICATE-----"
    layout.authority.write_text(begin + layout.certificate.read_text().rpartition(begin)[2])
    for user, token in layout.tokens.items():
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "vlm-operator-test",
            "clusters": [
                {
                    "name": "control-plane",
                    "cluster": {"server": layout.server, "certificate-authority": str(layout.authority)},
                }
            ],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "vlm-operator-test", "context": {"cluster": "control-plane", "user": user}}],
        }
        path = layout.kubeconfig(user)
        path.touch(mode=0o600)
        path.write_text(json.dumps(document, indent=2))


def etcd_flags(layout: Layout) -> list[str]:
    """Returns etcd's flags: one member, no fsync, because nobody will miss the data."""
    client = f"http://127.0.0.1:{layout.etcd_port}"
    peer = f"http://127.0.0.1:{layout.etcd_peer_port}"
    return [
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync=true",
        "--log-level=warn",
    ]


def apiserver_flags(layout: Layout) -> list[str]:
    """Returns the API server's flags; RBAC is on, so that a test sees what a role forbids."""
    return [
        f"--etcd-servers=http://127.0.0.1:{layout.etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--secure-port={layout.api_port}",
        f"--cert-dir={layout.certificate.parent}",
        f"--token-auth-file={layout.token_file}",
        f"--service-account-key-file={layout.signing_key}",
        f"--service-account-signing-key-file={layout.signing_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=RBAC,Node",
        f"--audit-policy-file={AUDIT_POLICY}",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-maxsize=1000",
    ]


def controller_manager_flags(layout: Layout) -> list[str]:
    """Returns the controllers' flags; the default rate of 20 requests a second starves large tests."""
    return [
        f"--kubeconfig={layout.kubeconfig('system:kube-controller-manager')}",
        f"--service-account-private-key-file={layout.signing_key}",
        f"--root-ca-file={layout.authority}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]


def scheduler_flags(layout: Layout) -> list[str]:
    """Returns the scheduler's flags."""
    return [
        f"--kubeconfig={layout.kubeconfig('system:kube-scheduler')}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]


def kwok_flags(layout: Layout, stages: Path) -> list[str]:
    """Returns the flags of kwok, which plays every node and its pods."""
    return [
        f"--kubeconfig={layout.kubeconfig('system:kwok')}",
        "--manage-all-nodes=true",
        f"--config={stages}",
        "--node-ip=127.0.0.1",
        "--cidr=10.244.0.0/16",
        "--node-lease-duration-seconds=40",
    ]
