"""``vlmctl explain``: a live object's answer in words."""

import argparse

from vlm_operator.cli import output
from vlm_operator.cli.explain_screen import explain_screen
from vlm_operator.cli.live import live_object
from vlm_operator.errors import InputError, Problem


def run_explain(arguments: argparse.Namespace) -> int:
    """Print what the object's status says; 1 if its spec does not fit or cannot be served."""
    body = live_object(arguments.namespace, arguments.name)
    if body is None:
        message = (
            f"there is no VLMDeployment {arguments.name!r} in namespace {arguments.namespace!r}; "
            "all of them: kubectl get vlmdeployments --all-namespaces"
        )
        raise InputError([Problem(path="", message=message)])
    if arguments.output == "human":
        output.write_lines(explain_screen(body, output.stdout_style()))
    else:
        output.write_data({"name": arguments.name, **body.get("status", {})}, arguments.output)
    conditions = body.get("status", {}).get("conditions", [])
    refused = any(c.get("type") in {"Accepted", "Sized"} and c.get("status") == "False" for c in conditions)
    return int(refused)
