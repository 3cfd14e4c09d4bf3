package main

import (
	"bytes"
	"path/filepath"
	"testing"
)

func TestTheSameSeedGivesTheSameBytes(t *testing.T) {
	for _, kind := range kinds {
		text := func(seed uint64) (string, []byte) {
			input, err := generate(kind.name, 120, seed)
			if err != nil {
				t.Fatal(err)
			}
			snapshot, err := input.snapshot()
			if err != nil {
				t.Fatal(err)
			}
			return input.catalog(), snapshot
		}
		catalog, snapshot := text(42)
		againCatalog, againSnapshot := text(42)
		if catalog != againCatalog || !bytes.Equal(snapshot, againSnapshot) {
			t.Errorf("%s: one seed gave two inputs", kind.name)
		}
		otherCatalog, other := text(43)
		// Preferences are of equal pods: another seed may draw the same.
		if kind.name != "preference" && catalog == otherCatalog && bytes.Equal(snapshot, other) {
			t.Errorf("%s: two seeds gave one input", kind.name)
		}
	}
}

func TestKarpenterSolvesEveryKind(t *testing.T) {
	unplaced := map[string]int{"hard-unschedulable": 60}
	for _, kind := range kinds {
		directory := filepath.Join(t.TempDir(), kind.name)
		input, err := generate(kind.name, 120, 42)
		if err != nil {
			t.Fatal(err)
		}
		if err := input.write(directory); err != nil {
			t.Fatal(err)
		}
		found, err := solve(request{
			snapshot: filepath.Join(directory, "snapshot.json"), catalog: filepath.Join(directory, "catalog.csv"), repeat: 1, cores: 1,
		})
		if err != nil {
			t.Fatalf("%s: %v", kind.name, err)
		}
		if found.Waiting != 120 || found.Unschedulable != unplaced[kind.name] {
			t.Errorf("%s: %d pods wait and %d have no place, expected 120 and %d",
				kind.name, found.Waiting, found.Unschedulable, unplaced[kind.name])
		}
		if (found.NewNodes == 0) != (found.UsdPerHour == 0) {
			t.Errorf("%s: %d new nodes cost %v $/h", kind.name, found.NewNodes, found.UsdPerHour)
		}
	}
}
