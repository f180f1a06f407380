"""The human screen when nothing fits: as prominent as a plan, with what would make it fit."""

from vlm_operator.cli.output import COLUMNS, Style
from vlm_operator.cli.plan_screen import Asked
from vlm_operator.cli.text import fold, section
from vlm_operator.report.figures import count, gpu_words
from vlm_operator.sizing.plan import NoFit


def no_fit_screen(no_fit: NoFit, asked: Asked, style: Style) -> list[str]:
    """Return the lines of the screen for ``no_fit``."""
    where = {"cluster": "the cluster", "catalogue": "the catalogue"}.get(asked.inventory, "the inventory")
    title = (
        f"{asked.name} · {no_fit.model_id}: nothing in {where} fits ({count(no_fit.candidates, 'candidate')})"
        if no_fit.candidates
        else f"{asked.name} · {no_fit.model_id}: it cannot be planned ({no_fit.reason})"
    )
    nearest = [
        f"{what}     {rejection.message.removeprefix(f'{what}: ')}"
        for rejection in no_fit.nearest
        for what in [gpu_words(rejection.gpus_per_replica, rejection.gpu)]
    ]
    by_reason = " · ".join(f"{number} {reason}" for reason, number in no_fit.by_reason)
    first, *rest = fold(title, COLUMNS - 2)
    lines = [f"{style.paint('bad', '✘')} {style.paint('strong', first)}", *(f"  {row}" for row in rest), ""]
    blocks = (
        ("why", [] if nearest else [no_fit.message]),
        ("nearest", nearest),
        ("what would fit", [str(change) for change in no_fit.suggestions]),
        ("by reason", [by_reason] if by_reason else []),
    )
    for label, block in blocks:
        if block:
            lines.extend([*section(label, block), ""])
    return lines[:-1]
