"""``vlmctl catalogue`` and ``vlmctl crd``: what the product knows, and the contract it serves."""

import argparse
from typing import Any, get_args

from vlm_operator.catalogue.load import all_gpus, find_licence, find_model, model_ids
from vlm_operator.catalogue.types import GpuCard, ModelCard, ModelCertainty
from vlm_operator.cli import output
from vlm_operator.cli.text import table
from vlm_operator.sizing.tokens.uncounted import refuse_dropped


def run_crd(arguments: argparse.Namespace) -> int:
    """Print the CustomResourceDefinition."""
    from vlm_operator.api.crd import custom_resource_definition  # noqa: PLC0415 - only this command needs it

    output.write_data(custom_resource_definition(), arguments.output)
    return 0


def run_catalogue(arguments: argparse.Namespace) -> int:
    """Print the catalogue's models or GPUs."""
    models = [find_model(model_id) for model_id in model_ids()]
    gpus = arguments.what == "gpus"
    if arguments.output != "human":
        items = [_gpu_document(card) for card in all_gpus()] if gpus else [_model_document(card) for card in models]
        output.write_data({"items": items}, arguments.output)
    else:
        output.write_lines(_gpu_rows(list(all_gpus())) if gpus else _model_rows(models))
    return 0


def _model_document(card: ModelCard) -> dict[str, Any]:
    refusal = refuse_dropped(card.architecture)
    return {
        "id": card.id,
        "architecture": card.architecture,
        "parameters": card.parameters,
        "served": card.served,
        "lastEngineVersion": card.last_engine_version,
        "notPlanned": refusal.message if refusal else None,
        "certainty": card.config_provenance.certainty,
        "source": list(card.config_provenance.source),
        "processorCertainty": card.processor_provenance.certainty,
        "processorSource": list(card.processor_provenance.source),
        "rememberedFields": list(card.remembered_fields),
        "licence": _licence_document(card.id),
    }


def _licence_document(model_id: str) -> dict[str, Any] | None:
    licence = find_licence(model_id)
    if licence is None:
        return None
    return {
        "name": licence.licence,
        "excludedJurisdictions": list(licence.excluded_jurisdictions),
        "nonCommercial": licence.non_commercial,
        "certainty": licence.provenance.certainty,
        "source": list(licence.provenance.source),
    }


def _gpu_document(card: GpuCard) -> dict[str, Any]:
    return {
        "id": card.id,
        "displayName": card.display_name,
        "vendor": card.vendor,
        "computeCapability": card.compute_capability,
        "driverMemoryMebibytes": card.driver_memory_mib,
        "engineMemoryGiB": card.engine_memory_gib,
        "engineMemoryCertainty": card.engine_memory_provenance.certainty,
        "bandwidthGBPerSecond": card.bandwidth_gb_per_second,
        "usdPerGpuHour": card.price.usd_per_gpu_hour if card.price else None,
        "labels": list(card.labels),
        "migInstances": card.mig.max_instances if card.mig else 0,
    }


def _model_rows(cards: list[ModelCard]) -> list[str]:
    rows = [["MODEL", "PARAMS", "SERVED", "CERTAINTY"]]
    rows.extend(
        [
            card.id,
            f"{card.parameters / 1e9:.1f} B" if card.parameters else "-",
            _served(card),
            _weakest(card),
        ]
        for card in cards
    )
    unknown = sum(find_licence(card.id) is None for card in cards)
    return [
        *table(rows, right=(1,), gap=2),
        "",
        f"{len(cards)} models; {unknown} of unknown licence. * = some or all figures are remembered, not read.",
    ]


def _served(card: ModelCard) -> str:
    if card.served:
        return "does not start" if refuse_dropped(card.architecture) else "yes"
    return f"until {card.last_engine_version}" if card.last_engine_version else "no"


def _weakest(card: ModelCard) -> str:
    """Return the certainty of the configuration or of the processor values, whichever is less sure."""
    order = get_args(ModelCertainty)
    worst = max(card.config_provenance.certainty, card.processor_provenance.certainty, key=order.index)
    return _certainty(worst, card.remembered_fields)


def _certainty(certainty: str, remembered: tuple[str, ...]) -> str:
    return f"{certainty} *" if remembered or certainty in ("memory", "remembered") else certainty


def _gpu_rows(cards: list[GpuCard]) -> list[str]:
    rows = [["GPU", "MEMORY", "CERTAINTY", "$/HOUR", "ID"]]
    rows.extend(
        [
            card.display_name,
            f"{card.engine_memory_gib:.1f} GiB" if card.engine_memory_gib else "-",
            _certainty(card.engine_memory_provenance.certainty, ()),
            f"{card.price.usd_per_gpu_hour:.2f}" if card.price else "-",
            card.id,
        ]
        for card in cards
    )
    return [
        *table(rows, right=(1, 3), gap=2),
        "",
        f"{len(cards)} GPUs. Memory is what the engine sees; $/hour is for one GPU.",
    ]
