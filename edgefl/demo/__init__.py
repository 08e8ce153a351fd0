"""The demo: a real fleet on one machine, with real kills, judged at the end."""
