"""A story goes on, and nothing in it comes twice: drafts cannot win here, only lose.

Owns its words.
"""

from __future__ import annotations

from pyspec.bench.workloads.workload import flow

__all__ = ["CONTINUATION", "PROMPT"]

PROMPT = flow("""\
My grandmother kept bees on the roof of a printing house, six storeys above a street where no flower had grown since
the war. She climbed up there each morning in my late uncle's overcoat, a veil pinned to her hat, and came down an
hour afterwards smelling of smoke and warm wax. As a boy I believed that she talked with them. Neighbours said so too,
half in jest, though several would knock at our door whenever somebody was ill, hoping for a jar.

What she actually did was listen. A healthy hive, she told me once while scraping a frame clean, hums like an orchestra
before the conductor arrives: everybody busy, nobody in time. Hunger sounds thinner. And when a queen has died, the
note drops until you feel it in your teeth rather than hear it. I was nine and nodded gravely, understanding nothing,
yet thirty years later I can still tell an unhappy crowd from a merely noisy one by that same tremble along the jaw.

The year the presses fell silent, men in grey suits measured the building from cellar to chimney.
""")

CONTINUATION = flow("""\
They drank coffee in the yard, unrolled blue plans across a parked van, and never looked upward. Grandmother watched
these visitors through the skylight with her arms folded. By Thursday she had decided. Long past midnight my father
carried ladders up the back stairs, cursing softly, while I held a lantern wrapped in red cloth because insects, it
seems, are blind to such a colour. One by one we lowered five humming boxes on ropes meant for paper bales. The sixth
slipped. It turned slowly above the gutter, tapped against a drainpipe, and for a moment the whole city appeared to
hold its breath. Then old Petrov, who owned the bakery opposite and had not spoken to us since an argument about
parking, reached out from his bedroom window in striped pyjamas, caught hold of a corner, and pulled the swarm safely
inside. He kept it on his balcony until he died. Every December a parcel came, unsigned, that tasted faintly of rye.
""")
