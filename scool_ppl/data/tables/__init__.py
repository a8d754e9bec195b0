"""Tables as data of clients: files and DataFrames read, columns learned, rows made into a federation."""
