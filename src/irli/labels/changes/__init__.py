"""Change a fitted label index: new rows, new labels, removed and renamed ones."""
