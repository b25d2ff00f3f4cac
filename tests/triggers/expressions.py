"""Random expressions and the zones they are tried in. What a clock change touches is tried more often."""

from __future__ import annotations

from random import Random

ZONES = (
    "UTC", "Europe/London", "Europe/Paris", "Europe/Dublin", "Europe/Lisbon", "Europe/Moscow", "Europe/Istanbul",
    "Europe/Chisinau", "America/New_York", "America/Chicago", "America/Los_Angeles", "America/St_Johns", "America/Havana",
    "America/Santiago", "America/Asuncion", "America/Sao_Paulo", "America/Caracas", "America/Nuuk", "America/Scoresbysund",
    "America/Mexico_City", "America/Godthab", "Africa/Casablanca", "Africa/El_Aaiun", "Africa/Cairo", "Africa/Juba",
    "Africa/Windhoek", "Asia/Tehran", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Amman", "Asia/Beirut", "Asia/Gaza",
    "Asia/Jerusalem", "Asia/Pyongyang", "Asia/Tokyo", "Asia/Ulaanbaatar", "Asia/Dhaka", "Australia/Lord_Howe",
    "Australia/Sydney", "Australia/Adelaide", "Pacific/Chatham", "Pacific/Auckland", "Pacific/Apia", "Pacific/Fakaofo",
    "Pacific/Fiji", "Pacific/Norfolk", "Pacific/Tongatapu", "Antarctica/Troll", "Antarctica/Casey", "Atlantic/Azores",
)  # fmt: skip
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
LIMITS = {"second": (0, 59), "minute": (0, 59), "hour": (0, 23), "dom": (1, 31), "month": (1, 12), "dow": (0, 6)}


def random_expression(random: Random, *, has_seconds: bool = False) -> str:
    fields = ["minute", "hour", "dom", "month", "dow"]
    words = [field(random, name) for name in (["second"] if has_seconds else []) + fields]
    if random.random() < 0.15:
        words[-1] = "+" + words[-1]
    return " ".join(words)


def field(random: Random, name: str) -> str:
    star = {"second": 0.2, "minute": 0.2, "hour": 0.35, "dom": 0.6, "month": 0.85, "dow": 0.6}[name]
    if random.random() < star:
        return random.choice(["*", "?", "*/1"]) if name in ("dom", "dow") else "*"
    return ",".join(item(random, name) for _ in range(random.choice([1, 1, 1, 2, 3])))


def item(random: Random, name: str) -> str:
    low, high = LIMITS[name]
    special = {"dom": special_day, "dow": special_weekday}.get(name)
    if special and random.random() < 0.35:
        return special(random)
    shape = random.randrange(7)
    if shape == 0:
        return f"*/{random.randint(1, high - low)}"
    if shape in (1, 2):
        first, last = sorted(random.sample(range(low, high + 1), 2))
        text = f"{value(random, name, first)}-{value(random, name, last)}"
        return text if shape == 1 else f"{text}/{random.randint(1, last - first)}"
    if shape == 3:
        first = random.randint(low, high - 1)
        return f"{first}/{random.randint(1, high - first)}"
    if shape == 4:
        return hashed(random, name)
    return value(random, name, likely(random, name))


def hashed(random: Random, name: str) -> str:
    low, high = LIMITS[name]
    if random.random() < 0.5:
        return f"H/{random.randint(1, (min(high, 28) - low + 1) // 2)}" if random.random() < 0.5 else "H"
    first, last = sorted(random.sample(range(low, high + 1), 2))
    step = random.randint(1, (last - first + 1) // 2)
    return f"H({first}-{last})" + (f"/{step}" if random.random() < 0.5 else "")


def likely(random: Random, name: str) -> int:
    if name == "hour" and random.random() < 0.7:
        return random.choice([0, 0, 1, 2, 2, 3, 23])
    if name == "minute" and random.random() < 0.6:
        return random.choice([0, 15, 30, 45, 59])
    return random.randint(*LIMITS[name])


def value(random: Random, name: str, number: int) -> str:
    names = {"month": ["", *MONTHS], "dow": WEEKDAYS}.get(name)
    if names is None or random.random() < 0.5:
        return f"{number:02}" if random.random() < 0.1 else str(number)
    text = names[number]
    return text if random.random() < 0.5 else text.lower()


def special_day(random: Random) -> str:
    return random.choice(["L", f"L-{random.randint(1, 30)}", f"{random.randint(1, 31)}W", "LW"])


def special_weekday(random: Random) -> str:
    day = value(random, "dow", random.randint(0, 6))
    return random.choice([f"{day}#{random.randint(1, 5)}", f"{day}#L", f"{day}L", "FRI-SUN", "5-7", "7"])
