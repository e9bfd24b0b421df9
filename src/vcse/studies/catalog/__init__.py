"""Every experiment, as data."""
