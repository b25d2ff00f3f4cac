"""`make compare`: Duly and its peers by the same scenarios, on the same server, in the same run.

`__main__.py` is the runner. It installs the peers (`install.py`), starts a PostgreSQL (`server.py`), and runs `measure.py` once
for each scenario and system, as a child process in the environment of that system. `adapters/` has one module for each system,
`scenarios.py` all that is measured, `table.py` the result.
"""
