"""What connections of both protocols share."""
