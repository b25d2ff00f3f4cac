"""The loop that decides who runs: it claims, holds, executes and settles."""
