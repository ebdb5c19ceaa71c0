"""Read and write files of labelled rows, texts and vocabularies."""

from irli.labels.files.documents import read_documents
from irli.labels.files.rows import read_matrix, read_rows, write_rows
from irli.labels.files.titles import read_titles

__all__ = ["read_documents", "read_matrix", "read_rows", "read_titles", "write_rows"]
