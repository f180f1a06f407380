"""What we know of the world, as reviewed data: GPUs with prices, models with their configuration files."""
