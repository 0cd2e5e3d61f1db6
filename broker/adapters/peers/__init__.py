"""The parts that connections of both protocols share."""
