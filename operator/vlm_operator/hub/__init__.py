"""The only package that speaks to a model hub: configuration files and tensor headers, never weights or code."""
