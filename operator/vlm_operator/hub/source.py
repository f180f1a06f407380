"""Which source describes a model, and its description from a hub. Called by ``controller`` and ``cli``."""

from typing import Literal

from vlm_operator.api.spec import Model
from vlm_operator.catalogue.load import model_ids
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.hub.card import describe_model
from vlm_operator.hub.client import fetch_files
from vlm_operator.hub.settings import HubSettings
from vlm_operator.hub.types import SourceRefusal


def choose_source(model: Model) -> Literal["Catalogue", "Hub", "ConfigMap"]:
    """Return the declared source; where none is, the catalogue for a model that it has, else the hub."""
    if model.source is not None:
        return model.source
    return "Catalogue" if model.id in model_ids() else "Hub"


def describe_from_hub(model_id: str, revision: str, settings: HubSettings) -> ModelCard | SourceRefusal:
    """Return the card of a model of the hub at a revision (empty: its main branch), or why there is none. Blocking."""
    files = fetch_files(model_id, revision, settings)
    return files if isinstance(files, SourceRefusal) else describe_model(model_id, files)
