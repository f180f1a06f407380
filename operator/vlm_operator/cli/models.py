"""The model that a command is about -> its card: the catalogue's, a hub's, a ConfigMap's or that of a folder.

What only other sources than the catalogue need is imported when one of them is asked.
"""

from pathlib import Path

from vlm_operator.api.validate import Resource
from vlm_operator.catalogue.load import find_model, model_ids
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.errors import CatalogueError, HubError, InputError, Problem


def named_card(model_id: str, source: str, model_dir: str | None = None) -> ModelCard:
    """Return the card of a model that the command line names.

    Raises:
        InputError: The folder or the hub has no such model.
        HubError: The hub did not answer.
        CatalogueError: The catalogue has no such model.
    """
    if model_dir is not None:
        return _card_of_folder(model_id, model_dir)
    if source == "hub":
        return _card_of_hub(model_id, "", "--model")
    try:
        return find_model(model_id)
    except CatalogueError as error:
        raise CatalogueError(f"{error}; the model's own files: --source hub, or --model-dir DIR") from None


def declared_card(resource: Resource, inventory: str, model_dir: str | None = None) -> ModelCard | None:
    """Return the card of a VLMDeployment's model, None where the catalogue is its source.

    Args:
        resource: The VLMDeployment.
        inventory: What ``--inventory`` names; with ``cluster`` a ConfigMap is read from there.
        model_dir: A folder that describes the model whatever its source says.

    Raises:
        InputError: The source has no such model.
        HubError: The hub did not answer.
        ClusterError: The cluster did not answer.
    """
    model = resource.spec.model
    if model_dir is not None:
        return _card_of_folder(model.id, model_dir)
    if model.source == "ConfigMap":
        return _card_of_config_map(resource, inventory)
    if model.source == "Hub":
        return _card_of_hub(model.id, model.revision or "", "spec.model.id")
    if model.source == "Catalogue" or model.id in model_ids():
        return None
    try:
        return _card_of_hub(model.id, model.revision or "", "spec.model.id")
    except (InputError, HubError) as error:
        said = error.problems[0].message if isinstance(error, InputError) else str(error)
        raise _wrong("spec.model.id", f"{_not_in_catalogue(model.id)}. And {said}") from None


def _card_of_folder(model_id: str, model_dir: str) -> ModelCard:
    from vlm_operator.hub.card import describe_model  # noqa: PLC0415 - see the module's docstring
    from vlm_operator.hub.folder import read_folder  # noqa: PLC0415
    from vlm_operator.hub.types import SourceRefusal  # noqa: PLC0415

    files = read_folder(Path(model_dir))
    found = files if isinstance(files, SourceRefusal) else describe_model(model_id, files)
    if isinstance(found, SourceRefusal):
        raise _wrong("--model-dir", found.message)
    return found


def _card_of_hub(model_id: str, revision: str, where: str) -> ModelCard:
    from vlm_operator.hub.settings import settings_from  # noqa: PLC0415 - see the module's docstring
    from vlm_operator.hub.source import describe_from_hub  # noqa: PLC0415
    from vlm_operator.hub.types import SourceRefusal  # noqa: PLC0415

    found = describe_from_hub(model_id, revision, settings_from())
    if isinstance(found, SourceRefusal):
        if found.transient:
            raise HubError(found.message)
        raise _wrong(where, found.message)
    return found


def _card_of_config_map(resource: Resource, inventory: str) -> ModelCard:
    from vlm_operator.cli.live import live_config_map  # noqa: PLC0415 - loads the Kubernetes client
    from vlm_operator.hub.card import describe_model  # noqa: PLC0415 - see the module's docstring
    from vlm_operator.hub.config_map import read_config_map  # noqa: PLC0415
    from vlm_operator.hub.types import SourceRefusal  # noqa: PLC0415

    where, name = "spec.model.configMapName", resource.spec.model.config_map_name or ""
    if inventory != "cluster":
        raise _wrong(
            where, f"ConfigMap {name!r} is on the cluster; add --inventory cluster, or --model-dir with its files"
        )
    document = live_config_map(resource.namespace or "default", name)
    if document is None:
        raise _wrong(
            where, f"there is no ConfigMap {name!r} in namespace {resource.namespace or 'default'!r}; create it"
        )
    files = read_config_map(document)
    found = files if isinstance(files, SourceRefusal) else describe_model(resource.spec.model.id, files)
    if isinstance(found, SourceRefusal):
        raise _wrong(where, found.message)
    return found


def _not_in_catalogue(model_id: str) -> str:
    try:
        find_model(model_id)
    except CatalogueError as error:
        return str(error)
    raise AssertionError(model_id)


def _wrong(path: str, message: str) -> InputError:
    return InputError([Problem(path=path, message=message)])
