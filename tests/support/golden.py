"""Files that hold what an output looked like when somebody read it; ``UPDATE_GOLDENS=1`` rewrites them."""

import os
from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).resolve().parents[1] / "golden"
UPDATE: Final = "UPDATE_GOLDENS"


def assert_golden(name: str, text: str) -> None:
    """Compare ``text`` with the golden file ``name``, or write it where ``UPDATE_GOLDENS`` is set."""
    path = GOLDEN / name
    if os.environ.get(UPDATE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path.name} is missing; run with {UPDATE}=1 and read what it wrote"
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; if it should, run with {UPDATE}=1"
