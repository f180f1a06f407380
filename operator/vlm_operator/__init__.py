"""Sizes vision-language models for Kubernetes and keeps vLLM running that way.

One street, one direction: api -> sizing -> render -> cluster -> report. The import contracts in
``pyproject.toml`` say who may import whom.
"""

__version__ = "0.1.0"
