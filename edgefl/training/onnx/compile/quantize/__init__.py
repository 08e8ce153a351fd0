"""Int8 forms of a model: for training through rounding, and for deployment."""
