"""Between float updates and integers in the ring."""
