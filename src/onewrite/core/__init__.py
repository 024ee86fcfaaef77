"""The parts that the engines share. Users never name them."""
