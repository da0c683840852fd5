"""A report is summed up with sentences quoted from it: new words, then whole sentences of the prompt.

Owns its words.
"""

from __future__ import annotations

from pyspec.bench.workloads.workload import flow

__all__ = ["CONTINUATION", "PROMPT"]

PROMPT = flow("""\
The reservoir above the town was built ninety years ago, when the valley had a tenth of the people who live there
today. For most of that time nobody worried about it. The dam is inspected every spring, the gates are greased every
autumn, and the water has never been lower than half. Last summer was different. By the end of August the level had
fallen to thirty-one percent, the lowest since records began, and the council forbade the watering of gardens for
seven weeks.

An engineer from the water board, Ines Halvorsen, was asked to find out why. Her report, published on Tuesday, runs
to sixty pages and does not blame the weather alone. "Rainfall was poor, but we have had poorer years," she writes.
"What has changed is how quickly the water leaves us." According to the report, the old mains lose nearly a quarter
of what enters them, twice as much as ten years ago, because the joints under the market street were damaged when the
tram line was laid.

The report recommends replacing four kilometres of pipe before the next dry summer, at a cost of about nine million.
It also asks the council to publish the level of the reservoir every week. "People save water when they can see the
need for it," Halvorsen told a meeting of residents, "and they stop trusting us when they learn about a shortage from
the colour of their lawns." The mayor said that the money could be found, but that the work would close the market
street for at least five months, and that shopkeepers would have to be heard first.

A summary of the article in one paragraph, quoting the most important statements word for word:

""")

CONTINUATION = flow("""\
Last summer the town's reservoir fell to "thirty-one percent, the lowest since records began, and the council forbade
the watering of gardens for seven weeks." A report by Ines Halvorsen of the water board finds that drought explains
only part of it: "Rainfall was poor, but we have had poorer years," she writes. "What has changed is how quickly the
water leaves us." The old mains, she found, "lose nearly a quarter of what enters them, twice as much as ten years
ago, because the joints under the market street were damaged when the tram line was laid." Four kilometres of pipe
should be replaced for about nine million. She also wants the level published weekly. "People save water when they can
see the need for it," she argues, "and they stop trusting us when they learn about a shortage from the colour of their
lawns." The mayor agrees in principle, but warns that "the work would close the market street for at least five
months, and that shopkeepers would have to be heard first."
""")
