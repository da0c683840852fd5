"""Rewrite prompts written by hand; none of them is in the training data.

Each function or class of 12 to 20 lines comes with several renames, and is also to be
copied as it is.
"""

from __future__ import annotations

from . import edit

AVERAGE = '''\
def average_length(words, limit=10):
    """Return the average length of the first words."""
    total = 0
    count = 0
    for word in words:
        if not word:
            continue
        total += len(word)
        count += 1
        if count >= limit:
            break
    if count == 0:
        return 0.0
    if total < 0:
        raise ValueError("total must not be negative")
    print("total:", total)
    print("count:", count)
    average = total / count
    total = round(total, 2)
    return average
'''
RENAMES: list[tuple[str, str]] = [
    (
        AVERAGE,
        "total:result count:number words:names average:mean word:entry",
    ),
    (
        '''\
def merge_sorted(left, right):
    """Merge two sorted lists into one sorted list."""
    merged = []
    i = 0
    j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            merged.append(left[i])
            i += 1
        else:
            merged.append(right[j])
            j += 1
    merged.extend(left[i:])
    merged.extend(right[j:])
    return merged
''',
        "merged:result left:first j:k merge_sorted:merge_lists",
    ),
    (
        '''\
def count_words(path, minimum=3):
    """Count the words of a file that are long enough."""
    counts = {}
    with open(path, encoding="utf-8") as handle:
        for line in handle:
            line = line.strip().lower()
            if not line or line.startswith("#"):
                continue
            for word in line.split():
                if len(word) < minimum:
                    continue
                counts[word] = counts.get(word, 0) + 1
    if not counts:
        raise ValueError("no words found in the file")
    return counts
''',
        "counts:table word:token handle:stream minimum:shortest line:row",
    ),
    (
        '''\
def binary_search(items, wanted):
    """Return the index of wanted in items, or -1."""
    low = 0
    high = len(items) - 1
    steps = 0
    while low <= high:
        middle = (low + high) // 2
        steps += 1
        if items[middle] == wanted:
            print("found after", steps, "steps")
            return middle
        if items[middle] < wanted:
            low = middle + 1
        else:
            high = middle - 1
    return -1
''',
        "middle:center low:start steps:rounds wanted:target items:numbers",
    ),
    (
        '''\
def draw_invoice(customer, orders, tax=0.19):
    """Print an invoice and return the amount due."""
    amount = 0.0
    print("Invoice for", customer)
    for order in orders:
        price = order["price"] * order["quantity"]
        print(order["name"], order["quantity"], price)
        amount += price
    discount = 0.0
    if amount > 1000:
        discount = amount * 0.05
        print("discount:", discount)
    amount = amount - discount
    amount = amount * (1 + tax)
    print("amount:", round(amount, 2))
    return amount
''',
        "amount:balance price:cost orders:lines discount:rebate tax:rate",
    ),
    (
        '''\
class Counter:
    """Counts how often each key was seen."""

    def __init__(self, limit):
        self.limit = limit
        self.data = {}
        self.seen = 0

    def add(self, key):
        self.seen += 1
        if self.seen > self.limit:
            raise RuntimeError("limit reached")
        self.data[key] = self.data.get(key, 0) + 1

    def most_common(self):
        pairs = sorted(self.data.items(), key=lambda pair: -pair[1])
        return [key for key, value in pairs]
''',
        "limit:maximum data:table seen:total pairs:ranking",
    ),
    (
        '''\
def parse_config(text):
    """Parse lines of the form name = value."""
    config = {}
    section = None
    for number, line in enumerate(text.splitlines()):
        line = line.strip()
        if not line:
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
            config[section] = {}
            continue
        name, sep, value = line.partition("=")
        if not sep:
            raise ValueError(f"line {number}: no value")
        if section is None:
            config[name.strip()] = value.strip()
        else:
            config[section][name.strip()] = value.strip()
    return config
''',
        "config:options section:group value:text_value number:index line:part",
    ),
    (
        '''\
def shortest_path(graph, start, goal):
    """Return the shortest path between two nodes."""
    queue = [(0, start, [start])]
    visited = set()
    while queue:
        queue.sort()
        cost, node, path = queue.pop(0)
        if node == goal:
            return cost, path
        if node in visited:
            continue
        visited.add(node)
        for neighbour, weight in graph[node]:
            if neighbour in visited:
                continue
            queue.append((cost + weight, neighbour, path + [neighbour]))
    return None
''',
        "queue:pending visited:done node:place cost:distance neighbour:other",
    ),
    (
        '''\
def wrap_text(text, width=72, indent="    "):
    """Wrap a text to lines of at most the given width."""
    lines = []
    current = indent
    for word in text.split():
        if len(current) + len(word) + 1 > width:
            lines.append(current.rstrip())
            current = indent
        current += word + " "
    if current.strip():
        lines.append(current.rstrip())
    return "\\n".join(lines)
''',
        "current:buffer lines:rows word:piece indent:prefix width:size",
    ),
    (
        '''\
def standard_deviation(values):
    """Return the mean and the standard deviation of some values."""
    size = len(values)
    if size < 2:
        raise ValueError("at least two values are needed")
    mean = 0.0
    for value in values:
        mean += value
    mean /= size
    variance = 0.0
    for value in values:
        delta = value - mean
        variance += delta * delta
    variance /= size - 1
    return mean, variance ** 0.5
''',
        "mean:average variance:spread value:x size:n values:samples",
    ),
    (
        '''\
def print_table(rows, headers, separator=" | "):
    """Print rows as a table with aligned columns."""
    widths = [len(header) for header in headers]
    for row in rows:
        for index, cell in enumerate(row):
            widths[index] = max(widths[index], len(str(cell)))
    parts = []
    for index, header in enumerate(headers):
        parts.append(header.ljust(widths[index]))
    print(separator.join(parts))
    print("-" * sum(widths))
    for row in rows:
        parts = []
        for index, cell in enumerate(row):
            parts.append(str(cell).ljust(widths[index]))
        print(separator.join(parts))
    print("rows:", len(rows))
''',
        "widths:sizes parts:cells index:i separator:glue rows:records",
    ),
    (
        '''\
def find_primes(limit):
    """Return all prime numbers below the limit."""
    sieve = [True] * limit
    sieve[0] = False
    sieve[1] = False
    number = 2
    while number * number < limit:
        if sieve[number]:
            for multiple in range(number * number, limit, number):
                sieve[multiple] = False
        number += 1
    primes = []
    for number in range(limit):
        if sieve[number]:
            primes.append(number)
    return primes
''',
        "sieve:flags number:candidate primes:result limit:bound multiple:k",
    ),
]
FUNCTIONS = [(code, [pair.split(":") for pair in pairs.split()]) for code, pairs in RENAMES]
TEXTS = {
    "quicksort": "def quicksort(",
    "stack": "class Stack:\n",
    "reader": 'def read_lines(path):\n    """Return the lines of a file."""\n',
}


def rewrites() -> list[tuple[str, str, str]]:
    """Returns the prompts: a label, the prompt and the expected answer."""
    found = []
    for code, renames in FUNCTIONS:
        kind = "class" if code.startswith("class") else "function"
        label = code.split()[1].split("(")[0].rstrip(":")
        for old, new in renames:
            prompt = code + edit.instruction(kind, old, new)
            found.append((f"{label}: {old} to {new}", prompt, edit.rename(code, old, new)))
        found.append((f"{label}: copy", f"{code}\n# the same {kind} again:\n", code))
    return found
