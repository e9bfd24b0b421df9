import csv


def read_rows(path):
    """Read a CSV file of numbers; an empty cell is NaN."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return [{name: float(cell) if cell else float("nan") for name, cell in row.items()} for row in rows]
