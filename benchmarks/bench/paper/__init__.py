"""The paper's own recipe, scaled down: rounds of learning, loads of the buckets, votes."""
