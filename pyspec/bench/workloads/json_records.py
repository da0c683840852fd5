"""A list of records goes on: the keys of each repeat, the values are new.

Owns its words.
"""

from __future__ import annotations

__all__ = ["CONTINUATION", "PROMPT"]

PROMPT = """\
Weather stations of the northern district, as exported on the first of May. Every station has the same fields.

```json
[
  {
    "station": "Harbour",
    "elevation_m": 4,
    "sensors": {"temperature": true, "humidity": true, "wind": true, "snow": false},
    "last_reading": {"temperature_c": 11.8, "humidity_percent": 82, "wind_m_s": 7.4},
    "status": "online"
  },
  {
    "station": "Mill Bridge",
    "elevation_m": 61,
    "sensors": {"temperature": true, "humidity": true, "wind": false, "snow": false},
    "last_reading": {"temperature_c": 13.1, "humidity_percent": 74, "wind_m_s": null},
    "status": "online"
  },
  {
    "station": "Upper Quarry",
    "elevation_m": 388,
    "sensors": {"temperature": true, "humidity": false, "wind": true, "snow": true},
    "last_reading": {"temperature_c": 8.6, "humidity_percent": null, "wind_m_s": 12.9},
    "status": "maintenance"
  },
"""

CONTINUATION = """\
  {
    "station": "Old Airfield",
    "elevation_m": 112,
    "sensors": {"temperature": true, "humidity": true, "wind": true, "snow": true},
    "last_reading": {"temperature_c": 12.4, "humidity_percent": 69, "wind_m_s": 9.2},
    "status": "online"
  },
  {
    "station": "Signal Hill",
    "elevation_m": 547,
    "sensors": {"temperature": true, "humidity": false, "wind": true, "snow": true},
    "last_reading": {"temperature_c": 5.3, "humidity_percent": null, "wind_m_s": 18.7},
    "status": "offline"
  },
  {
    "station": "Ferry Landing",
    "elevation_m": 2,
    "sensors": {"temperature": true, "humidity": true, "wind": false, "snow": false},
    "last_reading": {"temperature_c": 11.2, "humidity_percent": 88, "wind_m_s": null},
    "status": "online"
  }
]
```
"""
