"""The dashboard: files built from `ui/`, served as they are."""
