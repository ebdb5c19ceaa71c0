"""Labels: precision, time and size beside other libraries, and large data."""
