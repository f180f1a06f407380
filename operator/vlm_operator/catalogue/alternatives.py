"""Another checkpoint to propose where one cannot be served."""

from functools import cache
from math import log

from vlm_operator.catalogue.load import find_model, model_ids
from vlm_operator.catalogue.types import ModelCard


def find_served_like(card: ModelCard) -> str | None:
    """The id of the served checkpoint of the catalogue whose number of parameters is nearest to that of ``card``.

    Checkpoints in a smaller format, and those whose sizes are not their own, are not proposed.

    Returns:
        The id, the first in order where several are as near; None where the parameters of ``card`` are unknown.
    """
    if not card.parameters:
        return None
    wanted = log(card.parameters)
    return min(_stand_ins(), key=lambda pair: (abs(log(pair[1]) - wanted), pair[0]))[0]


@cache
def _stand_ins() -> tuple[tuple[str, int], ...]:
    cards = [card for card in map(find_model, model_ids()) if _may_stand_in(card)]
    return tuple((card.id, card.parameters) for card in cards if card.parameters)


def _may_stand_in(card: ModelCard) -> bool:
    plain = "quantization_config" not in card.config
    return card.served and plain and card.config_provenance.certainty != "class-default"
