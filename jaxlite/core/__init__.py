"""core: the data of traced programs, and what every interpreter stands on."""
