"""Gradients of maxima and averages over windows."""
