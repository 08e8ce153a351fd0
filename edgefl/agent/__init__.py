"""The device agent: a pure core that takes part in rounds, and the shell that runs it."""
