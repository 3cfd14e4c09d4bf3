#!/usr/bin/env python3
"""Regenerates the tables of the built-in EC2 catalogue (docs/reference/catalog.md).

    python3 .ci/catalog.py FACTS_DIRECTORY

FACTS_DIRECTORY holds instance_types.csv, eni_limits.csv, on_demand_prices.csv and spot_prices_us-east-1_2023-08.csv; the
page above names their origin. Zones and everything else that EC2 describes come from the installed Python package `moto`.
The output goes to src/model/catalog/data/ and depends on nothing but these inputs: the same inputs give the same bytes.
"""

import csv
import gzip
import json
import pathlib
import re
import sys
from collections import Counter, defaultdict

import moto
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

# What each input says of itself, for the header lines and for the notes that users see.
TYPES_DATE = "2026-07-11"
ENI_DATE = "2026-08-06"
PRICE_DATE = "2026-07-20"
SPOT_DATE = "2023-08-30"
PRICED_REGIONS = ["us-east-1", "us-gov-east-1", "us-gov-west-1"]

TYPE_COLUMNS = [
    "instance_type", "arch", "vcpu", "memory_mib", "cpu_manufacturer", "cpu_clock_mhz", "hypervisor",
    "encryption_in_transit", "nitro_enclaves", "ebs_bandwidth_mbps", "ebs_attachments", "ebs_limit",
    "network_bandwidth_mbps", "enis", "ipv4_per_eni", "network_cards", "branch_enis", "efa", "instance_store_gb", "local_nvme_gb", "gpu_name", "gpu_manufacturer",
    "gpu_count", "gpu_memory_mib", "accelerator_name", "accelerator_manufacturer", "accelerator_count", "neuron_cores",
    "spot",
]


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def read_moto(name):
    path = pathlib.Path(moto.__file__).parent / "ec2" / "resources" / name
    with gzip.open(path) as file:
        return json.load(file)


def name_key(name):
    """m5.large before m5.xlarge before m5.12xlarge: by family, then by the digits of the size, then by its text."""
    family, size = name.split(".", 1)
    digits = re.match(r"\d*", size).group()
    return family, int(digits or 0), size


def yes_no(value):
    return "yes" if value else "no"


def word(text):
    return text.lower().replace(" ", "-")


def described(kind):
    """A row from EC2's own description; None for what Kubernetes nodes cannot be."""
    processor, network = kind["ProcessorInfo"], kind["NetworkInfo"]
    architectures = processor["SupportedArchitectures"]
    if not {"x86_64", "arm64"} & set(architectures) or "hvm" not in kind["SupportedVirtualizationTypes"]:
        return None
    cards = network["NetworkCards"]
    default = next(card for card in cards if card["NetworkCardIndex"] == network["DefaultNetworkCardIndex"])
    ebs = kind["EbsInfo"]
    store = kind.get("InstanceStorageInfo", {}) if kind.get("InstanceStorageSupported") else {}
    total = store.get("TotalSizeInGB", "")
    row = {
        "instance_type": kind["InstanceType"],
        "arch": "arm64" if architectures[0] == "arm64" else "amd64",
        "vcpu": kind["VCpuInfo"]["DefaultVCpus"],
        "memory_mib": kind["MemoryInfo"]["SizeInMiB"],
        "cpu_manufacturer": word(processor.get("Manufacturer", "")),
        "cpu_clock_mhz": round(processor.get("SustainedClockSpeedInGhz", 0) * 1000) or "",
        "hypervisor": kind.get("Hypervisor", ""),
        "encryption_in_transit": yes_no(network.get("EncryptionInTransitSupported")),
        "nitro_enclaves": yes_no(kind.get("NitroEnclavesSupport") == "supported"),
        "ebs_bandwidth_mbps": ebs.get("EbsOptimizedInfo", {}).get("MaximumBandwidthInMbps", "")
        if ebs["EbsOptimizedSupport"] == "default" else "",
        "ebs_attachments": ebs.get("MaximumEbsAttachments", ""),
        "ebs_limit": ebs.get("AttachmentLimitType", ""),
        "network_bandwidth_mbps": round(sum(card.get("BaselineBandwidthInGbps", 0) for card in cards) * 1000) or "",
        "enis": default["MaximumNetworkInterfaces"],
        "ipv4_per_eni": network["Ipv4AddressesPerInterface"],
        "network_cards": len(cards),
        "efa": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", ""),
        "instance_store_gb": total,
        "local_nvme_gb": total if store.get("NvmeSupport", "unsupported") != "unsupported" else "",
        "spot": yes_no("spot" in kind["SupportedUsageClasses"]),
    }
    gpus = kind.get("GpuInfo", {}).get("Gpus", [])
    if len(gpus) == 1:
        row |= {
            "gpu_name": word(gpus[0]["Name"]), "gpu_manufacturer": word(gpus[0]["Manufacturer"]),
            "gpu_count": gpus[0]["Count"], "gpu_memory_mib": gpus[0]["MemoryInfo"]["SizeInMiB"],
        }
    devices = kind.get("NeuronInfo", {}).get("NeuronDevices", [])
    if len(devices) == 1:
        row |= {
            "accelerator_name": word(devices[0]["Name"]), "accelerator_manufacturer": "aws",
            "accelerator_count": devices[0]["Count"], "neuron_cores": devices[0]["CoreInfo"]["Count"],
        }
    return row


def documented(old, row):
    """`old` with what the newer page about instance types says."""
    new = dict(old)
    for column in [
        "instance_type", "arch", "vcpu", "memory_mib", "cpu_manufacturer", "hypervisor", "ebs_bandwidth_mbps",
        "network_bandwidth_mbps", "gpu_name", "gpu_manufacturer", "gpu_count", "gpu_memory_mib", "accelerator_name",
        "accelerator_manufacturer", "accelerator_count",
    ]:
        new[column] = row[column]
    new["cpu_clock_mhz"] = row["cpu_clock_mhz"] if row["cpu_clock_mhz"] != "0" else ""
    new["encryption_in_transit"] = yes_no(row["encryption_in_transit"] == "true")
    new["efa"] = row["alloc_efa"]
    new["local_nvme_gb"] = row["local_nvme_gib"]
    new.setdefault("instance_store_gb", row["local_nvme_gib"])
    # A type that is newer than EC2's description at hand: nearly all are sold as spot.
    new.setdefault("spot", "yes")
    return new


def types(facts):
    rows = {}
    for kind in read_moto("instance_types.json.gz").values():
        if row := described(kind):
            rows[row["instance_type"]] = row
    for row in read_csv(facts / "instance_types.csv"):
        rows[row["instance_type"]] = documented(rows.get(row["instance_type"], {}), row)
    for limits in read_csv(facts / "eni_limits.csv"):
        row = rows.get(limits["instance_type"])
        if row is None:
            continue
        row["enis"] = limits["max_enis_default_card"]
        row["ipv4_per_eni"] = limits["ipv4_per_eni"]
        row["network_cards"] = limits["network_cards"]
        if limits["trunking_compatible"] == "true" and limits["branch_enis"] != "0":
            row["branch_enis"] = limits["branch_enis"]
    return rows


def offers(known):
    """(region, family, sizes or *, letters of the zones)."""
    families = defaultdict(set)
    for name in known:
        family, size = name.split(".", 1)
        families[family].add(size)
    folder = pathlib.Path(moto.__file__).parent / "ec2" / "resources" / "instance_type_offerings" / "availability-zone"
    lines = []
    for path in sorted(folder.glob("*.json.gz")):
        region = path.name.removesuffix(".json.gz")
        letters = defaultdict(set)
        for offer in read_moto(f"instance_type_offerings/availability-zone/{path.name}"):
            zone, name = offer["Location"], offer["InstanceType"]
            if name in known and re.fullmatch(re.escape(region) + "[a-z]", zone):
                letters[name].add(zone[-1])
        groups = defaultdict(lambda: defaultdict(set))
        for name, zones in letters.items():
            family, size = name.split(".", 1)
            groups[family]["".join(sorted(zones))].add(size)
        if region in PRICED_REGIONS:
            # For types that are priced here but newer than this list: the zones that sell more than half of the others.
            count = Counter(zone for zones in letters.values() for zone in zones)
            usual = "".join(sorted(zone for zone in count if 2 * count[zone] > len(letters)))
            lines.append((region, "*", "*", usual))
        for family in sorted(groups):
            for zones, sizes in sorted(groups[family].items()):
                listed = "*" if sizes == families[family] else " ".join(
                    sorted(sizes, key=lambda size: name_key(f"{family}.{size}")))
                lines.append((region, family, listed, zones))
    listed = {line[0] for line in lines}
    for region, zones in RegionsAndZonesBackend.zones.items():
        if region not in listed:
            lines.append((region, "*", "*", "".join(sorted(zone.name[-1] for zone in zones))))
    return sorted(lines)


def prices(facts, known):
    rows = defaultdict(dict)
    for row in read_csv(facts / "on_demand_prices.csv"):
        if row["instance_type"] in known:
            rows[row["instance_type"]][row["region"]] = row["usd_per_hour"]
    for row in read_csv(facts / "spot_prices_us-east-1_2023-08.csv"):
        if row["instance_type"] in known:
            rows[row["instance_type"]] |= {"spot": row["spot_usd_per_hour"], "then": row["on_demand_usd_per_hour"]}
    return rows


def write(path, header, columns, rows):
    text = "".join(f"# {line}\n" for line in header) + ",".join(columns) + "\n"
    text += "".join(",".join(str(cell) for cell in row) + "\n" for row in rows)
    path.write_text(text)
    print(f"{path}: {len(rows)} rows, {len(text) // 1024} KiB")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    facts = pathlib.Path(sys.argv[1])
    output = pathlib.Path(__file__).parent.parent / "src" / "model" / "catalog" / "data"
    output.mkdir(exist_ok=True)
    generated = "Generated by .ci/catalog.py; docs/reference/catalog.md explains it. Do not edit."
    known = types(facts)
    names = sorted(known, key=name_key)
    write(output / "types.csv", [
        generated,
        f"Facts of instance types: aws/karpenter-provider-aws, page instance-types.md, {TYPES_DATE}, and what EC2",
        f"describes besides, as recorded in moto {moto.__version__}.",
        f"Interfaces and addresses: zz_generated.vpclimits.go of the same project, {ENI_DATE}.",
    ], TYPE_COLUMNS, [[known[name].get(column, "") for column in TYPE_COLUMNS] for name in names])
    write(output / "offers.csv", [
        generated,
        f"Which sizes of a family are sold in which zones (letters): ec2:DescribeInstanceTypeOfferings as recorded in moto",
        f"{moto.__version__}. Family `*`: any other type that has a price.",
    ], ["region", "family", "sizes", "zones"], offers(known))
    table = prices(facts, known)
    write(output / "prices.csv", [
        generated,
        "Dollars an hour, Linux, shared tenancy; an empty cell: not sold there.",
        f"On demand: price list of each region, {PRICE_DATE} (aws/karpenter-provider-aws zz_generated.pricing_*.go).",
        f"Spot and the on-demand price of the same day: us-east-1, {SPOT_DATE} (LeanerCloud/ec2-instances-info).",
    ], ["instance_type", *PRICED_REGIONS, "spot", "on_demand_then"], [
        [name, *(table[name].get(column, "") for column in [*PRICED_REGIONS, "spot", "then"])]
        for name in names if name in table
    ])


if __name__ == "__main__":
    main()
