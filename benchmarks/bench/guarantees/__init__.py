"""What an index promises, measured on shapes of data that it was not tuned on."""
