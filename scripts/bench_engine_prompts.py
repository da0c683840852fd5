"""Eight requests of each kind for the benchmark of many requests at once: code to write again, stories to go on with.

Owns their words, all written for this benchmark. They continue what `pyspec.bench.workloads` has of both kinds, in many
small pieces: no two prompts begin alike, so that no request can begin with another's memory.
"""

from __future__ import annotations

from pyspec.bench.workloads.workload import flow

__all__ = ["KINDS", "SAMPLED", "prompts"]

_CODE = (
    (
        ("names", "people", "members"),
        '''\
class Register:
    """Who has paid for this season, and who has not."""

    def __init__(self, fee=12):
        self.fee = fee
        self.names = {}

    def add(self, name):
        if name in self.names:
            raise ValueError(f"{name} is in the register already")
        self.names[name] = 0

    def pay(self, name, sum_paid):
        if sum_paid <= 0:
            raise ValueError("nothing was paid")
        self.names[name] += sum_paid

    def missing(self):
        return sorted(name for name, paid in self.names.items() if paid < self.fee)

    def total(self):
        return sum(self.names.values())
''',
    ),
    (
        ("points", "corners", "nodes"),
        '''\
def area(points):
    """The area inside a closed line, by the sum of its trapezoids."""
    total = 0.0
    for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1]):
        total += (x1 - x0) * (y0 + y1) / 2
    return abs(total)


def length(points):
    """How long the closed line is."""
    total = 0.0
    for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1]):
        total += ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
    return total


def moved(points, dx, dy):
    """The same line somewhere else."""
    return [(x + dx, y + dy) for x, y in points]
''',
    ),
    (
        ("stock", "shelf", "store"),
        """\
stock = {"nails": 400, "screws": 250, "hinges": 18}
prices = {"nails": 2, "screws": 3, "hinges": 140}


def sell(item, number):
    if stock.get(item, 0) < number:
        raise ValueError(f"only {stock.get(item, 0)} {item} left")
    stock[item] -= number
    return number * prices[item]


def deliver(item, number, price=None):
    stock[item] = stock.get(item, 0) + number
    if price is not None:
        prices[item] = price


def worth():
    return sum(number * prices[item] for item, number in stock.items())


def running_low(limit=20):
    return [item for item, number in stock.items() if number < limit]
""",
    ),
    (
        ("station", "sensor", "site"),
        '''\
def read_station(path):
    """Hourly values of one station: a list of pairs of hour and degrees."""
    values = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            hour, _, degrees = line.strip().partition(",")
            if hour.isdigit() and degrees:
                values.append((int(hour), float(degrees)))
    return values


def coldest(station):
    return min(station, key=lambda pair: pair[1])


def warmest(station):
    return max(station, key=lambda pair: pair[1])


def mean(station):
    return sum(degrees for _, degrees in station) / len(station)
''',
    ),
    (
        ("word", "term", "token"),
        '''\
import re
from collections import Counter


def count(text):
    """How often each word comes in a text, the most frequent word first."""
    found = Counter()
    for word in re.findall(r"[a-z]+", text.lower()):
        if len(word) > 2:
            found[word] += 1
    return found.most_common()


def shared(first, second):
    """Words of both texts."""
    left = {word for word, _ in count(first)}
    right = {word for word, _ in count(second)}
    return sorted(left & right)


def longest(text):
    return max((word for word, _ in count(text)), key=len, default="")
''',
    ),
    (
        ("ticket", "voucher", "pass_"),
        '''\
class Queue:
    """Tickets in the order in which they were drawn."""

    def __init__(self):
        self.waiting = []
        self.last_ticket = 0

    def draw(self):
        self.last_ticket += 1
        self.waiting.append(self.last_ticket)
        return self.last_ticket

    def call(self):
        if not self.waiting:
            return None
        ticket = self.waiting.pop(0)
        print(f"ticket {ticket}, please")
        return ticket

    def leave(self, ticket):
        if ticket in self.waiting:
            self.waiting.remove(ticket)

    def ahead_of(self, ticket):
        return self.waiting.index(ticket)
''',
    ),
    (
        ("grid", "board", "field"),
        '''\
def neighbours(grid, row, column):
    """How many of the eight cells around one are alive."""
    total = 0
    for dr in (-1, 0, 1):
        for dc in (-1, 0, 1):
            if (dr, dc) != (0, 0):
                total += grid[(row + dr) % len(grid)][(column + dc) % len(grid[0])]
    return total


def step(grid):
    """The grid one generation later."""
    new = [[0] * len(grid[0]) for _ in grid]
    for row in range(len(grid)):
        for column in range(len(grid[0])):
            n = neighbours(grid, row, column)
            new[row][column] = int(n == 3 or (n == 2 and grid[row][column]))
    return new
''',
    ),
    (
        ("train", "tram", "bus"),
        '''\
def departures(trains, station, after):
    """Trains that leave a station later than a time, the next one first."""
    found = []
    for train in trains:
        for stop in train["stops"]:
            if stop["name"] == station and stop["leaves"] > after:
                found.append((stop["leaves"], train["number"], train["stops"][-1]["name"]))
    return sorted(found)


def delay(train, minutes):
    for stop in train["stops"]:
        stop["arrives"] += minutes
        stop["leaves"] += minutes
    train["late"] = train.get("late", 0) + minutes


def is_late(train):
    return train.get("late", 0) > 5
''',
    ),
)
"""What one thing in the code is called at first, then and in the end; and the code."""

_PROSE = (
    """\
The ferry had not run since the ice came in November, and so the island kept its own time. My aunt wound the clock in
the school by the sun, a day late or a day early, and nobody minded. On the first of February a stranger walked across
from the mainland, pulling a sledge with a piano stool on it.""",
    """\
Nobody remembered who had planted the orchard behind the barracks. It gave hard yellow pears that were good for nothing
until they had lain in straw for a month. Sergeant Ilves counted them every evening, wrote the number in chalk on the
door, and swore that one was missing. In the last week of the harvest,""",
    """\
Before the dam was built there were four villages in the valley, and each had a bell. When the water rose they took
three of them up the hill. The fourth one was too heavy for the road. Divers say that it hangs there still, and old
fishermen will not anchor above it. I went out on the lake with my camera because""",
    """\
The watchmaker's daughter could not read, but she knew every movement by its sound. Customers came from the capital with
clocks that three masters had given up. She would close her eyes, hold the thing to her ear like a shell, and say the
name of the wheel. The year she turned seventeen, a letter arrived with""",
    """\
It rained so long that spring that the road to the quarry slid into the river, and the six men up there had to be fed by
a rope. Every noon Marta sent over a pot of soup, bread in oilcloth and the newspaper of the day before. What came back
in the empty pot were small carved animals. The first was a heron,""",
    """\
At the end of our street stood a cinema with ninety seats and one film. The owner had bought it in a better year and
could not afford another. We knew each word of it by the age of ten. Still we paid our coin on Saturdays, since the
projector broke in a different place each time, and then old Brandt would step before the screen and""",
    """\
My brother sold maps of places that he had never seen. He drew them in the kitchen at night, with brown ink and a ruler
that was one millimetre too short. Nobody ever came to complain. Then, in a wet October, a woman in hiking boots put one
of them on our table, pointed to a lake in the north, and said""",
    """\
When the lighthouse was given an electric lamp, the keeper was told to stay another year, in case the thing should fail.
So he sat under it with a book and a bucket of sand. Ships passed without knowing him. He began to write down their
names, then what they might carry, and by midsummer he was writing down""",
)


def _code_prompts() -> list[str]:
    """Each has its code twice and the first lines of the third time."""
    found = []
    for (first, second, third), code in _CODE:
        versions = [code.replace(first, name) for name in (first, second, third)]
        begun = "".join(versions[2].splitlines(keepends=True)[:3])
        found.append(
            f"`{first}` is called `{second}` from now on:\n\n```python\n{versions[0]}```\n\n"
            f"The same code with `{second}`:\n\n```python\n{versions[1]}```\n\n"
            f"The same code with `{third}`:\n\n```python\n{begun}"
        )
    return found


KINDS = {"code-rewrite": _code_prompts, "prose": lambda: [flow(text) for text in _PROSE]}
"""Functions that give the prompts of each kind."""

SAMPLED = ("prose",)
"""Kinds whose answers are drawn: a small model that always takes the likeliest token soon says one sentence only."""


def prompts(kind: str, n: int) -> list[str]:
    """`n` prompts; more than eight begin with the first ones again, each behind a number of its own."""
    found = KINDS[kind]()
    return [found[i % len(found)] if i < len(found) else f"{i}. {found[i % len(found)]}" for i in range(n)]
