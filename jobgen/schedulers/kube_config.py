"""Which cluster, user and namespace: kubeconfig read as kubectl reads it (several files, the first to say something
wins), else the service account of the pod that jobgen runs in."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobgen.schedulers.errors import SchedulerError
from jobgen.spec.record import NamedTuple

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Place(NamedTuple):
    """Where objects go."""

    context: str | None
    """None: inside a cluster, without a kubeconfig."""
    namespace: str
    server: str
    files: str = ""
    """The kubeconfig files, as in KUBECONFIG."""
    user: dict[str, Any] = {}  # noqa: RUF012  a NamedTuple default is never written to
    """The kubeconfig's entry of the user."""

    @property
    def scope(self) -> str:
        """Where names must differ."""
        return f"{self.server} {self.namespace}"


class NoContext(SchedulerError):
    """The kubeconfig does not name what was asked for."""


def files() -> str:
    """The kubeconfig files that kubectl would read."""
    return os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


def resolve(context: str | None, namespace: str | None, config: str | None = None) -> Place:
    """The place that kubectl would choose, with a context and a namespace that the spec may name."""
    found = {path: tree for path in (config or files()).split(os.pathsep) if path and (tree := _read(Path(path).expanduser())) is not None}
    if not found:
        return _own(context, namespace, config or files())
    name = context or next((str(tree["current-context"]) for tree in found.values() if tree.get("current-context")), None)
    if name is None:
        raise NoContext(f"no current context in {_spelled(found)}: kubectl config use-context NAME, or write kubernetes.context")
    chosen = _entry(found, "contexts", name, "context")
    if chosen is None:
        known = ", ".join(dict.fromkeys(str(row.get("name")) for tree in found.values() for row in tree.get("contexts") or []))
        raise NoContext(f"no context named {name} in {_spelled(found)} (there are: {known or 'none'})")
    cluster = _entry(found, "clusters", chosen.get("cluster"), "cluster")
    if cluster is None or not cluster.get("server"):
        raise NoContext(f"context {name} names the cluster {chosen.get('cluster')}, which {_spelled(found)} does not describe")
    user = _entry(found, "users", chosen.get("user"), "user") or {}
    paths = os.pathsep.join(str(Path(path).expanduser().absolute()) for path in found)
    return Place(name, namespace or chosen.get("namespace") or "default", str(cluster["server"]).rstrip("/"), paths, user)


def _read(path: Path) -> dict[str, Any] | None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        tree = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoContext(f"the kubeconfig {path} cannot be read: {error.strerror}") from None
    except (YAMLError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        raise NoContext(f"the kubeconfig {path} is no YAML: {first}") from None
    if tree is not None and not isinstance(tree, dict):
        raise NoContext(f"the kubeconfig {path} is no kubeconfig: a map is expected")
    return tree


def _entry(found: Mapping[str, dict[str, Any]], part: str, name: Any, key: str) -> dict[str, Any] | None:
    for tree in found.values():
        for row in tree.get(part) or []:
            if isinstance(row, dict) and row.get("name") == name:
                return row.get(key) or {}
    return None


def _spelled(found: Mapping[str, Any]) -> str:
    return os.pathsep.join(found)


def _own(context: str | None, namespace: str | None, looked: str) -> Place:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if context or not host or not port or not (ACCOUNT / "token").exists():
        wanted = f"context {context} was asked for and" if context else "no cluster to talk to:"
        raise NoContext(f"{wanted} there is no kubeconfig at {looked}; set KUBECONFIG, or log in to the cluster")
    own = os.environ.get("POD_NAMESPACE") or ((ACCOUNT / "namespace").read_text(encoding="utf-8").strip() if (ACCOUNT / "namespace").exists() else "")
    return Place(None, namespace or own or "default", f"https://{f'[{host}]' if ':' in host else host}:{port}")


def client(place: Place) -> Any:
    """The official client's connection to the place, with its credentials."""
    from kubernetes import client, config

    said = _Said()
    root = logging.getLogger()
    root.addHandler(said)
    try:
        if place.context is not None:
            made: Any = config.new_client_from_config(config_file=place.files, context=place.context)  # type: ignore[no-untyped-call]
        else:
            configuration = client.Configuration()
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            made = client.ApiClient(configuration)
    except Exception as error:  # a damaged certificate, a missing file: each raises its own
        raise SchedulerError(f"the kubeconfig's context {place.context} cannot be used: {error}") from None
    finally:
        root.removeHandler(said)
    if "exec" in place.user and said.lines and not made.configuration.auth_settings() and not made.configuration.cert_file:
        raise SchedulerError(f"the login command of context {place.context} fails: {'; '.join(said.lines)}; log in again and repeat")
    return made


class _Said(logging.Handler):
    """The client logs what a login command says against the user, and goes on without credentials."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.lines.append(record.getMessage().strip())


def impersonation(place: Place) -> dict[str, str]:
    """Headers of a kubeconfig user that acts as another (``as``); the client knows none of them."""
    user = place.user
    found = {"Impersonate-User": user.get("as"), "Impersonate-Uid": user.get("as-uid"), "Impersonate-Group": ",".join(user.get("as-groups") or [])}
    return {name: str(value) for name, value in found.items() if value}
