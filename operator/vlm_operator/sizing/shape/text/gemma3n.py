"""Gemma-3n beside its plain decoder layers: alternating updates (AltUp) and learned residuals (LAuReL).

Source: vLLM 0.33.0 ``M/gemma3n.py``: ``Gemma3nAltUp``, ``Gemma3nLaurelBlock``, ``Gemma3nSelfDecoder`` and
``Gemma3nTextModel``.
"""

from collections.abc import Mapping
from typing import Any, Final

from vlm_operator.sizing.shape.weight import Weight, table

_FLOAT32: Final = 4


def residual_streams(text: Mapping[str, Any]) -> tuple[Weight, ...]:
    """Return what Gemma-3n adds to its layers; the projections in and out of the streams are split by columns.

    Raises:
        KeyError: The file lacks the number of streams or the rank of the residuals.
    """
    hidden, streams = int(text["hidden_size"]), int(text["altup_num_inputs"])
    rank, every = int(text["laurel_rank"]), tuple(range(int(text["num_hidden_layers"])))
    others = tuple(range(streams - 1))
    layer = "layers.{}."
    return (
        *(
            Weight(part="other", name=name, rows=hidden, columns=hidden, split="columns", layers=others)
            for name in ("altup_projections.{}", "altup_unembed_projections.{}")
        ),
        Weight(part="router", name=layer + "altup.modality_router", rows=hidden, columns=streams, layers=every),
        Weight(part="other", name=layer + "altup.correction_coefs", rows=streams, columns=streams, layers=every),
        Weight(part="other", name=layer + "altup.prediction_coefs", rows=streams, columns=streams**2, layers=every),
        Weight(
            part="other",
            name=layer + "altup.correct_output_scale",
            rows=1,
            columns=hidden,
            layers=every,
            linear=False,
            element_bytes=_FLOAT32,
        ),
        Weight(
            part="other", name=layer + "laurel.linear_left", rows=hidden, columns=rank, split="columns", layers=every
        ),
        Weight(part="other", name=layer + "laurel.linear_right", rows=rank, columns=hidden, split="rows", layers=every),
        table("norms", layer + "altup.router_norm", hidden, every),
        table("norms", layer + "laurel.post_laurel_norm", hidden, every),
    )
