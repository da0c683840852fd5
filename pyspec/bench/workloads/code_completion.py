"""A class of methods that are alike goes on: its frame repeats, names and details do not.

Owns its words.
"""

from __future__ import annotations

__all__ = ["CONTINUATION", "PROMPT"]

PROMPT = '''\
"""A client of the parcel service: one method for each address of its interface."""

import json
from urllib.parse import quote
from urllib.request import Request, urlopen


class ParcelClient:
    """Asks the parcel service; every method returns what the service sent, as plain data."""

    def __init__(self, base_url, token, timeout=10.0):
        self.base_url = base_url.rstrip("/")
        self.token = token
        self.timeout = timeout

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode("utf-8")
        request = Request(self.base_url + path, data=data, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", "application/json")
        with urlopen(request, timeout=self.timeout) as response:
            return json.loads(response.read())

    def get_parcel(self, parcel_id):
        """One parcel with its present place."""
        if not parcel_id:
            raise ValueError("parcel_id must not be empty")
        return self._call("GET", f"/parcels/{quote(parcel_id)}")

    def delete_parcel(self, parcel_id):
        """Forget a parcel that was never handed over."""
        if not parcel_id:
            raise ValueError("parcel_id must not be empty")
        return self._call("DELETE", f"/parcels/{quote(parcel_id)}")

    def get_customer(self, customer_id):
        """One customer with all known addresses."""
        if not customer_id:
            raise ValueError("customer_id must not be empty")
        return self._call("GET", f"/customers/{quote(customer_id)}")

'''

CONTINUATION = '''\
    def delete_customer(self, customer_id):
        """Forget a customer who has no open parcels."""
        if not customer_id:
            raise ValueError("customer_id must not be empty")
        return self._call("DELETE", f"/customers/{quote(customer_id)}")

    def get_depot(self, depot_id):
        """One depot with its opening hours."""
        if not depot_id:
            raise ValueError("depot_id must not be empty")
        return self._call("GET", f"/depots/{quote(depot_id)}")

    def close_depot(self, depot_id, reason):
        """Close a depot until further notice; its parcels go to the next one."""
        if not depot_id:
            raise ValueError("depot_id must not be empty")
        return self._call("POST", f"/depots/{quote(depot_id)}/close", {"reason": reason})

    def get_route(self, route_id):
        """One route with the depots along it, in order."""
        if not route_id:
            raise ValueError("route_id must not be empty")
        return self._call("GET", f"/routes/{quote(route_id)}")
'''
