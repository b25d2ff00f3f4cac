"""The whole system under one seed: real processes' code, real moves, real PostgreSQL; only time, chance and the network are ours.

Each simulated process (scheduler, worker, maintenance, client, person) runs its real loops on an event loop of its own over a
virtual clock (`loop`). Its statements travel to the database through us (`server`, `network`), which lose, delay, refuse and
repeat what the seed says (`plan`). What is observed is kept apart from Duly's own tables and held against them (`ledger`,
`checks`). Beside the faults a plan draws a few parts (`part`, `parts`): lines, places and rates, limits, expiries, floods,
workflows that somebody meddles with, followers, dead letters in bulk, receivers that fall ill.
`python -m tests.simulation --seed N -v` replays one seed.
"""
