"""Trained policies: loaded, evaluated and filmed."""
