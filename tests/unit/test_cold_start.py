"""What a plan by closed formulas loads: the command line starts fast because it leaves out the rest."""

import json
import os
import subprocess
import sys
from pathlib import Path

from vlm_operator import planning

CHAT = Path(__file__).parents[2] / "manifests" / "samples" / "chat.yaml"
PLAN = """
import json, sys
from vlm_operator.cli.main import main
status = main(["plan", "--no-simulation", "--output", "json", "-f", sys.argv[1]])
sys.stderr.write(json.dumps([status, *sys.modules]))
"""
NEEDLESS = {"kubernetes", "kopf", "jinja2", "huggingface_hub", "httpx2"}


def test_a_plan_by_closed_formulas_loads_no_client_no_templates_and_no_controller() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(planning.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", PLAN, str(CHAT)], check=True, capture_output=True, text=True, env=environment
    )
    status, *loaded = json.loads(done.stderr)
    assert status == 0
    assert not NEEDLESS & set(loaded)
