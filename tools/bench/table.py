# SPDX-License-Identifier: Apache-2.0
"""Reads compare.sh's JSON lines, prints the table for docs/performance.md: medians over the rounds, and
copse's ratio to each peer, round by round (median, least, most)."""
import json
import statistics
import sys

runs = {}
for line in sys.stdin:
    if line.startswith("{"):
        run = json.loads(line)
        key = (run["net"], run["batch"], run["mode"])
        runs.setdefault(key, {}).setdefault((run["peer"], run["version"]), []).append(run)

for (net, batch, mode), peers in runs.items():
    ours = next((r for (peer, _), r in peers.items() if peer == "copse"), [])
    print("### %s, batch %d, %s\n" % (net, batch, mode))
    print("| | samples/s, median | rounds | copse is faster by | peak memory, MiB |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for (peer, version), got in sorted(
            peers.items(), key=lambda p: -statistics.median(r["samples_per_s"]["median"] for r in p[1])):
        rates = [r["samples_per_s"]["median"] for r in got]
        ratio = ""
        if peer != "copse" and ours:
            ratios = [a["samples_per_s"]["median"] / b for a, b in zip(ours, rates)]
            ratio = "%.2f (%.2f to %.2f)" % (statistics.median(ratios), min(ratios), max(ratios))
        print("| %s %s | %s | %d | %s | %.0f |" % (
            peer, version, format(round(statistics.median(rates)), ","), len(rates), ratio,
            max(r["peak_rss_bytes"] for r in got) / 2**20))
    print()
