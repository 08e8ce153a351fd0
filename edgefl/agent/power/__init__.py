"""What a board can tell about its power, heat, memory, disk and network; one file per source."""
