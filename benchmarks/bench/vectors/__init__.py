"""Vector search: speed beside other libraries, work beside FAISS IVFFlat, builds and latency."""
