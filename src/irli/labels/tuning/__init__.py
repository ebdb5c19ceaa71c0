"""Choose on held-out rows how a label index predicts."""
