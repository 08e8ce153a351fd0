"""Training on the device: data in, one flat update out."""
