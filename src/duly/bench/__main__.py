"""`python -m duly.bench SCENARIO`, the same as `duly bench SCENARIO`."""

from duly.bench.cli import bench

if __name__ == "__main__":
    bench(prog_name="python -m duly.bench")
