#!/usr/bin/env python3
"""Prints the figures that `run` wrote, side by side: table.py OUT/provisor.json OUT/karpenter.json"""
import json
import os
import sys


def rows(result):
    """(what, figure) of one scenario, as measure.py names them."""
    if "error" in result:
        return [("failed", result["error"])]
    out = []
    down = result.get("scaledown")
    for part, name in ((result, ""), (result.get("burst"), "growth: "), (down, ""), (result.get("grow"), "growth: ")):
        if not part:
            continue
        for key in ("claim", "node", "bound", "running"):
            if isinstance(part.get(key), dict):
                out.append((f"{name}pod → {key}, s p50 / p95", f"{part[key]['p50_s']} / {part[key]['p95_s']}"))
        for key in ("pods_all_made_s", "first_claim_s", "all_claims_s", "all_nodes_ready_s", "all_bound_s", "all_running_s",
                    "pods_gone_s", "last_change_s", "nodes", "usd_per_hour", "usd_final", "usd_over_floor", "usd_spent_in_600_s",
                    "claims_made", "claims_deleted"):
            if key in part and not isinstance(part[key], dict):
                out.append((name + key.removesuffix("_s") + (", s" if key.endswith("_s") and "usd" not in key else ""), part[key]))
        if "controller" in part:
            own, api, load = part["controller"], part["api"], part["load"]
            out += [(name + "memory, MiB: end / peak", f"{own['rss_mib']} / {own['rss_peak_mib']}"),
                    (name + "CPU, s (% of a core)", f"{own['cpu_s']} ({own['cpu_percent_of_a_core']})"),
                    (name + "requests (a second)", f"{api['requests']} ({api['per_s']})"),
                    (name + "refused", json.dumps(api["refused"])),
                    (name + "evictions", json.dumps(api["evictions"])),
                    (name + "CPU of the API server; of others, s", f"{load['plane_cpu_s'].get('kube-apiserver')}; {load['others_cpu_s']}")]
    for at, minute in enumerate(result.get("minutes", []), 1):
        out.append((f"minute {at}: CPU %, requests/s, MiB",
                    f"{minute['cpu_percent_of_a_core']}, {minute['requests_per_s']}, {minute['rss_mib']}"))
    return out


sides = [(os.path.basename(path).removesuffix(".json"), json.load(open(path))["results"]) for path in sys.argv[1:]]
names = list(dict.fromkeys(result["scenario"] for _, results in sides for result in results))
for name in names:
    found = [dict(rows(next((r for r in results if r["scenario"] == name), {}))) for _, results in sides]
    whats = list(dict.fromkeys(what for figures in found for what in figures))
    print(f"\n### {name}\n\n| | {' | '.join(side for side, _ in sides)} |\n| --- |{' --- |' * len(sides)}")
    for what in whats:
        print(f"| {what} | {' | '.join(str(figures.get(what, '-')) for figures in found)} |")
