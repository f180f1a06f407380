"""Image size -> tokens. One module per counting rule, one table from architecture to rule."""
