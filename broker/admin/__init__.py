"""The admin surface: health, metrics, HTTP."""
