package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind is a sort of input.
type kind struct {
	name  string
	about string
	// pods is how many wait unless somebody says otherwise.
	pods int
	make func(chance *rand.Rand, pods int) input
}

var kinds = []kind{
	{"diverse", "the mix of Karpenter's own benchmark: plain, spread, together, apart; 400 types", 5000, diverse},
	{"preference", "equal pods, most of whose preferences cannot be met; 400 types", 4000, preference},
	{"hard-pools", "20 weighted pools, 20 DaemonSets, 800 types, 200 ReplicaSets with rules", 10000, hardPools},
	{"hard-existing", "waiting pods, and one node for each of them with 15 pods on it", 2000, hardExisting},
	{"hard-unschedulable", "one half fits on no machine there is; 400 types", 10000, hardUnschedulable},
	{"varied", "a small cluster of any sort: pools, nodes, daemons and rules are drawn; some 130 types", 60, varied},
}

func kindNames() []string {
	names := make([]string, len(kinds))
	for at, kind := range kinds {
		names[at] = kind.name
	}
	return names
}

// input is a cluster and what is for sale.
type input struct {
	objects []client.Object
	types   []saleRow
}

// generate makes an input; the same arguments always make the same.
func generate(name string, pods int, seed uint64) (input, error) {
	at := slices.IndexFunc(kinds, func(kind kind) bool { return kind.name == name })
	if at < 0 {
		return input{}, fmt.Errorf("there is no kind %q; there are %s", name, strings.Join(kindNames(), ", "))
	}
	if pods == 0 {
		pods = kinds[at].pods
	}
	if pods < 0 {
		return input{}, fmt.Errorf("%d pods cannot wait", pods)
	}
	return kinds[at].make(rand.New(rand.NewPCG(seed, uint64(at))), pods), nil
}

// saleRow is a row of a catalogue: a type in the zones in which it is sold alike.
type saleRow struct {
	name, arch            string
	cpus, memoryMiB, pods int
	// keptMillicores and keptMiB are not for pods.
	keptMillicores, keptMiB int
	// Prices are micro-dollars an hour; 0 is not sold.
	onDemand, spot int
	zones          []string
}

func (row saleRow) render() string {
	var ways []string
	dollars := func(way string, micros int) string {
		if micros == 0 {
			return ""
		}
		ways = append(ways, way)
		return fmt.Sprintf("%d.%06d", micros/1_000_000, micros%1_000_000)
	}
	onDemand, spot := dollars("on-demand", row.onDemand), dollars("spot", row.spot)
	return strings.Join([]string{
		row.name, row.arch, strconv.Itoa(row.cpus), strconv.Itoa(row.memoryMiB),
		fmt.Sprintf("%dm", row.cpus*1000-row.keptMillicores), fmt.Sprintf("%dMi", row.memoryMiB-row.keptMiB), strconv.Itoa(row.pods),
		"", "", onDemand, spot, strings.Join(row.zones, " "), strings.Join(ways, " "),
	}, ",")
}

func (input input) catalog() string {
	lines := []string{strings.Join(catalogColumns, ",")}
	for _, row := range input.types {
		lines = append(lines, row.render())
	}
	return strings.Join(lines, "\n") + "\n"
}

// snapshot is a JSON List with one object a line.
func (input input) snapshot() ([]byte, error) {
	text := []byte(`{"apiVersion":"v1","kind":"List","items":[`)
	for at, object := range input.objects {
		line, err := json.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", object.GetName(), err)
		}
		if at > 0 {
			text = append(text, ',')
		}
		text = append(append(text, '\n'), line...)
	}
	return append(text, "\n]}\n"...), nil
}

func (input input) write(directory string) error {
	snapshot, err := input.snapshot()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(directory, "catalog.csv"), []byte(input.catalog()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, "snapshot.json"), snapshot, 0o644)
}
