"""`docs/explanation/security.md` names every attack file with as many cases as pytest collects."""

from tests.security.__main__ import HEAD, PAGE, counted, renewed


def test_attack_table_matches_the_cases_that_pytest_collects():
    page, cases = PAGE.read_text(), counted()
    right = renewed(page, cases)

    assert len(cases) > 20
    assert page == right, f"python -m tests.security writes:\n{HEAD}{right.partition(HEAD)[2]}"


def test_files_that_come_and_go_change_the_table():
    stays, goes = "| Tenants | `test_tenants.py` | 6 | nothing is seen |", "| Old | `test_gone.py` | 1 | it |"
    before = f"# Page\n\n{HEAD}{stays}\n{goes}\n\nMore.\n"

    after = renewed(before, {"test_tenants.py": 7, "test_tls.py": 4})

    assert after.startswith(f"# Page\n\n{HEAD}")
    assert after.endswith("\n\nMore.\n")
    first, second = after.partition(HEAD)[2].partition("\n\n")[0].splitlines()
    assert first == "| Tenants | `test_tenants.py` | 7 | nothing is seen |"
    assert second.startswith("|  | `test_tls.py` | 4 | TLS is spoken")
