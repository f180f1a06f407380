"""What `vllm serve` makes of a command line: its parser, its settings, and which arguments a plan can keep."""
