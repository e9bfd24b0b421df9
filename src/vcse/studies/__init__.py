"""Studies: what many runs say together, as numbers with intervals, figures and pages."""
