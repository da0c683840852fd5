"""An agent has read files and run tests, says what is wrong, writes a file again and adds a test.

Old lines of files and outputs come again between new words. Owns its words.
"""

from __future__ import annotations

__all__ = ["CONTINUATION", "PROMPT"]

_MODULE = '''\
"""Reading orders from CSV files."""

import csv
import logging
from dataclasses import dataclass

log = logging.getLogger("importer")


@dataclass(frozen=True)
class Order:
    order_id: str
    customer: str
    quantity: int
    amount: int
    currency: str


def parse_row(row):
    order_id = row["order_id"].strip()
    if not order_id:
        raise ValueError("a row without an order_id")
    customer = row["customer"].strip()
    quantity = int(row["quantity"])
    currency = row.get("currency", "EUR")
    amount = int(row["amount"])
    return Order(order_id, customer, quantity, amount, currency)


def read_orders(path):
    log.info("import started, source=%s", path)
    orders = []
    with open(path, newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file), 1):
            try:
                orders.append(parse_row(row))
            except ValueError:
                log.error("import failed at row %d", number)
                raise
    log.info("%d rows read", len(orders))
    return orders
'''

_TEST = """\
def test_a_row_becomes_an_order():
    row = {"order_id": " A-17 ", "customer": "Ibsen", "quantity": "3", "amount": "1250"}
    assert parse_row(row) == Order("A-17", "Ibsen", 3, 1250, "EUR")


def test_a_row_without_an_id_is_refused():
    row = {"order_id": "  ", "customer": "Ibsen", "quantity": "3", "amount": "1250"}
    with pytest.raises(ValueError, match="without an order_id"):
        parse_row(row)
"""

_TRACEBACK = """\
  File "importer/orders.py", line 27, in parse_row
    amount = int(row["amount"])
ValueError: invalid literal for int() with base 10: '12.50'
"""

_CHANGES = (
    ("import csv\nimport logging\n", "import csv\nimport logging\nfrom decimal import Decimal\n"),
    ('    amount = int(row["amount"])\n', '    amount = int(Decimal(row["amount"]) * 100)\n'),
)

PROMPT = f"""\
user: The nightly import fails since yesterday. Can you find out why, and mend it?

assistant: I look at the log first.
tool call: run {{"command": "tail -n 8 logs/import.log"}}

tool output:
2031-03-14 02:00:01 INFO  import started, source=/data/in/orders.csv
2031-03-14 02:00:02 ERROR import failed at row 7311
Traceback (most recent call last):
{_TRACEBACK}2031-03-14 02:00:02 INFO  nothing was written, the transaction was rolled back

assistant: One amount has a decimal point. I read the function that fails.
tool call: read_file {{"path": "importer/orders.py"}}

tool output:
{_MODULE}
assistant: I check how many rows are like this one.
tool call: run {{"command": "cut -d, -f4 /data/in/orders.csv | grep -c '[.]'"}}

tool output:
3

assistant: Now the tests that there are.
tool call: read_file {{"path": "tests/test_orders.py"}}

tool output:
{_TEST}
user: Amounts in the file are in whole units now, and cents behind a point. Explain the cause, then write the corrected
file and the tests.

assistant: """


def _changed(text: str) -> str:
    for old, new in _CHANGES:
        text = text.replace(old, new)
    return text


CONTINUATION = f"""\
The import stopped with this error:

{_TRACEBACK}
Three rows of `/data/in/orders.csv` have a decimal point, which `int` does not accept. Since the log says "nothing was
written, the transaction was rolled back", no data has to be repaired. I convert amounts exactly, to whole cents.
tool call: write_file {{"path": "importer/orders.py"}}

{_changed(_MODULE)}
tool call: write_file {{"path": "tests/test_orders.py"}}

{_TEST.replace('3, 1250, "EUR"', '3, 125000, "EUR"')}

def test_an_amount_may_have_cents():
    row = {{"order_id": "A-17", "customer": "Ibsen", "quantity": "3", "amount": "12.50"}}
    assert parse_row(row) == Order("A-17", "Ibsen", 3, 1250, "EUR")

tool call: run {{"command": "pytest tests/test_orders.py"}}
"""
