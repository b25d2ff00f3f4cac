"""The values that a metric's label may take: so many for each tenant and so many in all; the rest share `other`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

OTHER = "other"
OF_TENANT_MAX = 100
LABELS_MAX = 1_000


class Labels:
    """The values with a label of their own. Those `known` have one already, each by a tenant: a counter keeps its name."""

    def __init__(
        self,
        known: Iterable[tuple[int, Hashable]] = (),
        *,
        of_tenant_max: int = OF_TENANT_MAX,
        most: int = LABELS_MAX,
    ) -> None:
        self._of_tenant_max = of_tenant_max
        self._most = most
        self._known: set[Hashable] = set()
        self._counts: Counter[int] = Counter()
        for tenant, value in known:
            self._known.add(value)
            self._counts[tenant] += 1

    def admits(self, tenant: int, value: Hashable) -> bool:
        """Return whether a tenant's value has a label of its own; a new one is added while there is room."""
        if value in self._known:
            return True
        if self._counts[tenant] >= self._of_tenant_max or len(self._known) >= self._most or value == OTHER:
            return False
        self._counts[tenant] += 1
        self._known.add(value)
        return True

    def label(self, tenant: int, value: str) -> str:
        """Return the label of a value: the value, or `other` where the tenant has too many."""
        return value if self.admits(tenant, value) else OTHER

    def knows(self, value: Hashable) -> bool:
        """Return whether a value has a label of its own."""
        return value in self._known
