"""The archive of history: partitions go to Parquet files, and are read from there."""
