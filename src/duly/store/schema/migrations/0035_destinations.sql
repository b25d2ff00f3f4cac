-- What nobody has used for long is forgotten. docs/decisions/0023-destinations.md says why.

-- When a destination was last used is, to within ten seconds, when its window last turned.
create index destinations_by_use on duly.destinations (half_at);
