package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const header = "instance_type,arch,vcpu,memory_mib,alloc_cpu,alloc_memory,alloc_pods,nvidia_gpu,neuron," +
	"on_demand_usd_per_hour,spot_usd_per_hour,zones,capacity_types\n"

func TestRowsOfOneTypeAreOneType(t *testing.T) {
	types, err := readCatalog(strings.NewReader(header+
		"m5.large,amd64,2,8192,1930m,7000Mi,29,,,0.096,0.04,a b,on-demand spot\n"+
		"m5.large,amd64,2,8192,1930m,7000Mi,29,,,0.1,,c,on-demand spot\n"), "catalog.csv")
	if err != nil {
		t.Fatal(err)
	}
	if len(types) != 1 || len(types[0].Offerings) != 5 {
		t.Fatalf("expected one type with five offerings: %v", types)
	}
	kind := types[0]
	if room := kind.Allocatable(); room.Cpu().String() != "1930m" || room.Memory().String() != "7000Mi" || room.Pods().Value() != 29 {
		t.Errorf("what is left for pods: %v", room)
	}
	if price, isSold := kind.OfferingPrice("c", "on-demand"); !isSold || price != 0.1 {
		t.Errorf("zone c asks %v (%v)", price, isSold)
	}
	if _, isSold := kind.OfferingPrice("c", "spot"); isSold {
		t.Error("a price that is empty is an offering that is not there")
	}
	for key, value := range map[string]string{labelCategory: "m", labelFamily: "m5", labelGeneration: "5", labelSize: "large"} {
		if !kind.Requirements.Get(key).Has(value) {
			t.Errorf("%s is not %s", key, value)
		}
	}
	if zones := kind.Requirements.Get(corev1.LabelTopologyZone); zones.Len() != 3 {
		t.Errorf("sold in %v", zones)
	}
}

func TestWhatIsWrongIsNamedWithItsLine(t *testing.T) {
	const row = "m5.large,amd64,2,8192,1930m,7000Mi,29,,,0.096,,a,on-demand\n"
	for text, message := range map[string]string{
		"":        "there is no instance type",
		row + row: "catalog.csv:3: instance_type: a second price",
		row + strings.Replace(row, "29", "30", 1):     "catalog.csv:3: instance_type: an earlier row",
		strings.Replace(row, "1930m", "3", 1):         "catalog.csv:2: alloc_cpu: 3 is more",
		strings.Replace(row, "0.096", "cheap", 1):     `catalog.csv:2: on_demand_usd_per_hour: "cheap" is not a price`,
		strings.Replace(row, "on-demand", "never", 1): `catalog.csv:2: capacity_types: "never"`,
		strings.Replace(row, "amd64", "risc", 1):      "catalog.csv:2: arch",
	} {
		if _, err := readCatalog(strings.NewReader(header+text), "catalog.csv"); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%q: expected %q, found %v", text, message, err)
		}
	}
}
