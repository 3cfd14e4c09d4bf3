#!/usr/bin/env python3
"""Prints the instance types of Karpenter's kwok provider as a catalogue for `provisor … --catalog`.

144 types: processors × GiB a processor × architecture × operating system. A processor costs 0.025 $ an hour and 10⁹ bytes
0.001 $, spot 0.7 of it. Our node class boots Linux, so those of Windows are listed without a price, which is not sold.
"""
FAMILIES = {"c": 2, "s": 4, "m": 8}
SIZES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
ZONES = " ".join(f"test-zone-{letter}" for letter in "abcd")

print("instance_type,arch,vcpu,memory_mib,alloc_cpu,alloc_memory,alloc_pods,nvidia_gpu,neuron,"
      "on_demand_usd_per_hour,spot_usd_per_hour,zones,capacity_types")
for family, gib_each in FAMILIES.items():
    for cpus in SIZES:
        for arch in ("amd64", "arm64"):
            for system in ("linux", "windows"):
                gib = cpus * gib_each
                usd = 0.025 * cpus + 0.001 * gib * 2**30 / 1e9
                prices = (f"{usd:.6f}", f"{usd * 0.7:.6f}", ZONES, "on-demand spot") if system == "linux" else ("",) * 4
                room = (f"{cpus * 1000 - 100}m", f"{gib * 1024 - 10}Mi", min(16 * cpus, 1024))
                print(f"{family}-{cpus}x-{arch}-{system}", arch, cpus, gib * 1024, *room, "", "", *prices, sep=",")
