"""Reports: runs read back, statistics, verdicts, figures and pages."""
