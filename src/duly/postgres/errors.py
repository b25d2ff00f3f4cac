"""Errors of the embedded PostgreSQL's start; each message names the thing and the remedy.

EmbeddedError
├── BinariesMissing        no PostgreSQL programs where they should be, or none this account can run
├── DataFolderRefused      the folder holds something that is not ours to start on: nothing was changed
├── DataFolderHeld         another process runs a server on the folder
└── ServerFailed           PostgreSQL ended by itself; the message ends with its own last words
"""

from __future__ import annotations

from duly.domain.errors import DatabaseUnusable


class EmbeddedError(DatabaseUnusable):
    """The embedded PostgreSQL cannot be used."""


class BinariesMissing(EmbeddedError):
    """PostgreSQL's programs are not there or cannot be run."""


class DataFolderRefused(EmbeddedError):
    """The data folder cannot be used as it is."""


class DataFolderHeld(EmbeddedError):
    """Another process runs a server on the data folder."""


class ServerFailed(EmbeddedError):
    """A PostgreSQL program ended with an error."""
