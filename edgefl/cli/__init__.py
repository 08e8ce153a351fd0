"""The `edgefl` command: one file per sub-tree."""
