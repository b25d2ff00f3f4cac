"""The plan of a claim: who gets how many of it. Pure SQL: lines, weights, a limit and a seed in, numbers out."""

from collections import Counter

import pytest

SEEDS = 1_000


async def plan(database, lines, limit, *, weights=(1,), tenant_weights=None, seed=7):
    """Give what each tenant of each queue gets; lines are (queue number, tenant), once for each of its priorities."""
    rows = await database.fetch(
        "select * from duly.plan_claim($1, $2, $3, $4, $5, $6)",
        [number for number, _ in lines],
        [tenant for _, tenant in lines],
        list(weights),
        [(tenant_weights or {}).get(tenant, 1) for _, tenant in lines],
        limit,
        seed,
    )
    parts: Counter[tuple[int, int]] = Counter()
    for row in rows:
        parts[lines[row["subqueue"] - 1]] += row["quota"]
    for line, rest in {lines[row["subqueue"] - 1]: row["rest"] for row in rows}.items():
        parts[line] += rest  # It is told on each of a tenant's lines, and is one number.
    return {line: part for line, part in parts.items() if part}


async def planned_often(database, lines, limit, *, weights=(1,), tenant_weights=None):
    """Add up what each line gets over a thousand claims: floors, and what goes by rank."""
    rows = await database.fetch(
        "select line, sum(quota)::int as quota, sum(rest)::int as rest, min(quota + rest) as least, max(quota + rest) as most"
        f" from generate_series(1, {SEEDS}) as seed cross join lateral"
        " (select each.line, coalesce(plan.quota, 0) as quota, coalesce(plan.rest, 0) as rest"
        "    from generate_subscripts($1::int[], 1) as each(line)"
        "    left join duly.plan_claim($1, $2, $3, $4, $5, seed) as plan on plan.subqueue = each.line) as one"
        " group by line order by line",
        [number for number, _ in lines],
        [tenant for _, tenant in lines],
        list(weights),
        [(tenant_weights or {}).get(tenant, 1) for _, tenant in lines],
        limit,
    )
    return [dict(row) for row in rows]


async def test_tenants_of_one_weight_get_the_same(database):
    assert await plan(database, [(1, 1), (1, 2), (1, 3), (1, 4)], 100) == {(1, tenant): 25 for tenant in (1, 2, 3, 4)}


async def test_tenants_get_by_their_weight(database):
    assert await plan(database, [(1, 1), (1, 2)], 100, tenant_weights={2: 4}) == {(1, 1): 20, (1, 2): 80}


async def test_queues_get_shares_by_weight_however_many_tenants_wait(database):
    crowded = [(1, 1), *((2, tenant) for tenant in range(1, 6))]

    parts = await plan(database, crowded, 120, weights=(5, 1))

    assert parts == {(1, 1): 100, **{(2, tenant): 4 for tenant in range(1, 6)}}


async def test_a_queue_without_lines_takes_nothing_from_the_others(database):
    assert await plan(database, [(2, 1), (2, 2)], 10, weights=(100, 1)) == {(2, 1): 5, (2, 2): 5}


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 64, 1_999])
async def test_parts_are_the_share_to_within_one_and_together_the_limit(database, limit):
    lines = [(1, tenant) for tenant in range(1, 12)]
    shares = {(1, tenant): limit * (3 if tenant == 4 else 1) / 13 for tenant in range(1, 12)}

    for seed in range(50):
        parts = await plan(database, lines, limit, tenant_weights={4: 3}, seed=seed)

        assert sum(parts.values()) == limit
        assert all(abs(parts.get(line, 0) - share) < 1 for line, share in shares.items())


async def test_a_claim_of_one_is_a_fair_draw_by_weight(database):
    """A thousand draws: the weighted tenant is due 400 of them; four standard deviations are 62."""
    rows = await planned_often(database, [(1, tenant) for tenant in range(1, 5)], 1, tenant_weights={4: 2})

    drawn = [row["quota"] + row["rest"] for row in rows]
    assert sum(drawn) == SEEDS
    assert all(abs(number - share) < 62 for number, share in zip(drawn, (200, 200, 200, 400), strict=True)), drawn


async def test_over_many_claims_a_part_is_its_share_also_where_it_does_not_divide(database):
    rows = await planned_often(database, [(1, 1), (1, 2), (1, 3)], 10)

    drawn = [row["quota"] + row["rest"] for row in rows]
    assert sum(drawn) == 10 * SEEDS
    assert all(abs(number - 10 * SEEDS / 3) < 65 for number in drawn), drawn
    assert {(row["least"], row["most"]) for row in rows} == {(3, 4)}


async def test_a_tenth_of_a_tenants_part_is_certain_for_its_priorities_evenly(database):
    rows = await planned_often(database, [(1, 1)] * 4, 100)

    assert [row["rest"] for row in rows] == [90 * SEEDS] * 4
    assert all(abs(row["quota"] - 2.5 * SEEDS) < 65 for row in rows)


async def test_claim_of_a_single_run_serves_the_priority_floors_a_tenth_of_the_time(database):
    """A thousand claims: a hundred of the floor, 33 for each of three; four standard deviations are 38 and 23."""
    rows = await planned_often(database, [(1, 1)] * 3, 1)

    floors = [row["quota"] for row in rows]
    assert abs(sum(floors) - 100) < 38
    assert all(abs(number - 33) < 23 for number in floors), floors
    assert rows[0]["rest"] == SEEDS - sum(floors)
