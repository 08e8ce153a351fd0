"""What is run against the code, and what measures it; not installed."""
