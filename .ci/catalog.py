#!/usr/bin/env python3
"""Makes the built-in EC2 catalogue: src/model/catalog/types.csv and regions.csv.

    catalog.py --facts DIR [--out src/model/catalog]

DIR holds the four tables that docs/reference/catalog.md describes: instance_types.csv, eni_limits.csv, on_demand_prices.csv and
spot_prices_us-east-1_2023-08.csv. Zones come from the installed package `moto` (pip install moto). Same input, same bytes.
"""

import argparse
import csv
import statistics
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

COLUMNS = [
    "instance_type", "arch", "vcpu", "memory_mib", "cpu_manufacturer", "cpu_clock_mhz", "hypervisor",
    "encryption_in_transit", "ebs_mbps", "network_mbps", "local_nvme_gib", "gpu_name", "gpu_manufacturer", "gpu_count",
    "gpu_memory_mib", "accelerator_name", "accelerator_manufacturer", "accelerator_count", "neuron", "efa", "pod_eni",
    "enis", "ipv4_per_eni", "max_pods", "usd_us-east-1", "usd_us-gov-east-1", "usd_us-gov-west-1", "spot_usd",
    "spot_source",
]
SPOT_DATE = "2023-08-30"


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))



def letters(name):
    end = next((at for at, letter in enumerate(name) if not letter.isalpha()), len(name))
    return name[:end]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("src/model/catalog"))
    arguments = parser.parse_args()

    enis = {row["instance_type"]: row for row in table(arguments.facts / "eni_limits.csv")}
    prices = {}
    for row in table(arguments.facts / "on_demand_prices.csv"):
        prices.setdefault(row["instance_type"], {})[row["region"]] = row["usd_per_hour"]
    spot = {}
    ratios = {}
    for row in table(arguments.facts / "spot_prices_us-east-1_2023-08.csv"):
        spot[row["instance_type"]] = row["spot_usd_per_hour"]
        ratio = Decimal(row["spot_usd_per_hour"]) / Decimal(row["on_demand_usd_per_hour"])
        ratios.setdefault(letters(row["instance_type"]), []).append(ratio)
    usual = statistics.median([ratio for each in ratios.values() for ratio in each])

    rows = []
    for facts in table(arguments.facts / "instance_types.csv"):
        name = facts["instance_type"]
        sold = prices.get(name, {})
        if "us-east-1" not in sold:
            continue
        limits = enis.get(name)
        if name in spot:
            price, source = spot[name], SPOT_DATE
        else:
            ratio = statistics.median(ratios.get(letters(name), [usual]))
            estimate = (Decimal(sold["us-east-1"]) * ratio).quantize(Decimal("0.0001"), ROUND_HALF_UP)
            price, source = format(estimate.normalize(), "f"), "estimate"
        rows.append({
            "instance_type": name,
            "arch": facts["arch"],
            "vcpu": facts["vcpu"],
            "memory_mib": facts["memory_mib"],
            "cpu_manufacturer": facts["cpu_manufacturer"],
            "cpu_clock_mhz": facts["cpu_clock_mhz"],
            "hypervisor": facts["hypervisor"],
            "encryption_in_transit": facts["encryption_in_transit"],
            "ebs_mbps": facts["ebs_bandwidth_mbps"],
            "network_mbps": facts["network_bandwidth_mbps"],
            "local_nvme_gib": facts["local_nvme_gib"],
            "gpu_name": facts["gpu_name"],
            "gpu_manufacturer": facts["gpu_manufacturer"],
            "gpu_count": facts["gpu_count"],
            "gpu_memory_mib": facts["gpu_memory_mib"],
            "accelerator_name": facts["accelerator_name"],
            "accelerator_manufacturer": facts["accelerator_manufacturer"],
            "accelerator_count": facts["accelerator_count"],
            "neuron": facts["alloc_neuron"],
            "efa": facts["alloc_efa"],
            "pod_eni": facts["alloc_pod_eni"],
            "enis": limits["max_enis_default_card"] if limits else "",
            "ipv4_per_eni": limits["ipv4_per_eni"] if limits else "",
            "max_pods": "" if limits else facts["alloc_pods"],
            "usd_us-east-1": sold["us-east-1"],
            "usd_us-gov-east-1": sold.get("us-gov-east-1", ""),
            "usd_us-gov-west-1": sold.get("us-gov-west-1", ""),
            "spot_usd": price,
            "spot_source": source,
        })
    rows.sort(key=lambda row: row["instance_type"])
    with open(arguments.out / "types.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)

    from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

    with open(arguments.out / "regions.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["region", "zones", "zone_ids"])
        for region, zones in sorted(RegionsAndZonesBackend.zones.items()):
            ordered = sorted(zones, key=lambda zone: zone.name)
            writer.writerow([region, " ".join(z.name for z in ordered), " ".join(z.zone_id for z in ordered)])


if __name__ == "__main__":
    main()
