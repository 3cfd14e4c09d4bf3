package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// catalogColumns is the header of a catalogue file, as `provisor --catalog` reads it.
var catalogColumns = []string{
	"instance_type", "arch", "vcpu", "memory_mib", "alloc_cpu", "alloc_memory", "alloc_pods", "nvidia_gpu", "neuron",
	"on_demand_usd_per_hour", "spot_usd_per_hour", "zones", "capacity_types",
}

// Labels that the EC2 provider adds to a node. Those that a row of a catalogue cannot tell match whatever is asked.
const (
	labelCategory   = "karpenter.k8s.aws/instance-category"
	labelFamily     = "karpenter.k8s.aws/instance-family"
	labelGeneration = "karpenter.k8s.aws/instance-generation"
	labelSize       = "karpenter.k8s.aws/instance-size"
	labelCPU        = "karpenter.k8s.aws/instance-cpu"
	labelMemory     = "karpenter.k8s.aws/instance-memory"
	labelGPUCount   = "karpenter.k8s.aws/instance-gpu-count"
	labelGPUMaker   = "karpenter.k8s.aws/instance-gpu-manufacturer"
	labelGPUName    = "karpenter.k8s.aws/instance-gpu-name"
)

// rootVolume is what a node of a class without settings has for files, and diskKept what of it is not for pods: 1 GiB of the
// kubelet and a tenth that it evicts for.
var (
	rootVolume = resource.MustParse("20Gi")
	diskKept   = resource.MustParse("3Gi")
)

// typeName reads names such as `m7i-flex.2xlarge`: category, generation, the rest of the family, size.
var typeName = regexp.MustCompile(`^(([a-z]+)([0-9]+)[a-z0-9-]*)\.([a-z0-9-]+)$`)

func init() {
	karpenter.WellKnownLabels.Insert(
		labelCategory, labelFamily, labelGeneration, labelSize, labelCPU, labelMemory, labelGPUCount, labelGPUMaker, labelGPUName,
	)
}

// readCatalog reads instance types in the order of their first rows. Rows of one type are one type, sold in several ways.
func readCatalog(source io.Reader, file string) ([]*cloudprovider.InstanceType, error) {
	lines := csv.NewReader(source)
	lines.FieldsPerRecord = len(catalogColumns)
	lines.Comment = '#'
	header, err := lines.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: the header: %w", file, err)
	}
	if !slices.Equal(header, catalogColumns) {
		return nil, fmt.Errorf("%s:1: the header is %q, expected %q", file, strings.Join(header, ","), strings.Join(catalogColumns, ","))
	}
	var types []*cloudprovider.InstanceType
	first := map[string]*cloudprovider.InstanceType{}
	stated := map[string][]string{}
	for {
		cells, err := lines.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		line, _ := lines.FieldPos(0)
		row := catalogRow{cells: cells}
		offerings := row.offerings()
		name, facts := row.cell("instance_type"), cells[1:9]
		if known, isKnown := first[name]; isKnown {
			if !slices.Equal(facts, stated[name]) {
				row.fail("instance_type", "an earlier row describes %q differently", name)
			}
			for _, offering := range offerings {
				if _, isSold := known.OfferingPrice(offering.Zone(), offering.CapacityType()); isSold {
					row.fail("instance_type", "a second price of %s as %s in %s", name, offering.CapacityType(), offering.Zone())
				}
			}
			known.Offerings = append(known.Offerings, offerings...)
		} else {
			first[name], stated[name] = row.instanceType(offerings), slices.Clone(facts)
			types = append(types, first[name])
		}
		if row.err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, line, row.err)
		}
	}
	if len(types) == 0 {
		return nil, fmt.Errorf("%s: there is no instance type in it", file)
	}
	// What a type may be is what it is sold as.
	for _, kind := range types {
		var zones, ways []string
		for _, offering := range kind.Offerings {
			zones, ways = append(zones, offering.Zone()), append(ways, offering.CapacityType())
		}
		kind.Requirements.Add(
			scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, zones...),
			scheduling.NewRequirement(karpenter.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, ways...),
		)
	}
	return types, nil
}

// catalogRow reads cells by column name and keeps the first thing that is wrong.
type catalogRow struct {
	cells []string
	err   error
}

func (row *catalogRow) cell(column string) string {
	return strings.TrimSpace(row.cells[slices.Index(catalogColumns, column)])
}

func (row *catalogRow) fail(column, message string, values ...any) {
	if row.err == nil {
		row.err = fmt.Errorf("%s: %s", column, fmt.Sprintf(message, values...))
	}
}

func (row *catalogRow) quantity(column string) resource.Quantity {
	amount, err := resource.ParseQuantity(row.cell(column))
	if err != nil || amount.Sign() < 0 {
		row.fail(column, "%q is not an amount", row.cell(column))
	}
	return amount
}

// count reads a whole number; an empty cell is none.
func (row *catalogRow) count(column string) int64 {
	if row.cell(column) == "" {
		return 0
	}
	count, err := strconv.ParseInt(row.cell(column), 10, 64)
	if err != nil || count < 0 {
		row.fail(column, "%q is not a whole number", row.cell(column))
	}
	return count
}

// offerings is each way and zone in which the row sells; one without a price is not sold.
func (row *catalogRow) offerings() cloudprovider.Offerings {
	var offerings cloudprovider.Offerings
	for _, way := range strings.Fields(row.cell("capacity_types")) {
		column, isPriced := map[string]string{
			karpenter.CapacityTypeOnDemand: "on_demand_usd_per_hour",
			karpenter.CapacityTypeSpot:     "spot_usd_per_hour",
		}[way]
		if !isPriced {
			row.fail("capacity_types", "%q is neither on-demand nor spot", way)
			continue
		}
		if row.cell(column) == "" {
			continue
		}
		price, err := strconv.ParseFloat(row.cell(column), 64)
		if err != nil || price < 0 {
			row.fail(column, "%q is not a price", row.cell(column))
		}
		for _, zone := range strings.Fields(row.cell("zones")) {
			offerings = append(offerings, &cloudprovider.Offering{
				Available: true,
				Price:     price,
				Requirements: scheduling.NewLabelRequirements(map[string]string{
					karpenter.CapacityTypeLabelKey: way,
					corev1.LabelTopologyZone:       zone,
				}),
			})
		}
	}
	return offerings
}

func (row *catalogRow) instanceType(offerings cloudprovider.Offerings) *cloudprovider.InstanceType {
	name, arch := row.cell("instance_type"), row.cell("arch")
	if name == "" {
		row.fail("instance_type", "a row needs a name")
	}
	if arch != "amd64" && arch != "arm64" {
		row.fail("arch", "%q is neither amd64 nor arm64", arch)
	}
	cpus, memory := row.count("vcpu"), row.count("memory_mib")
	if cpus == 0 || memory == 0 {
		row.fail("vcpu", "a machine has processors and memory")
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(cpus, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(memory<<20, resource.BinarySI),
		corev1.ResourcePods:             row.quantity("alloc_pods"),
		corev1.ResourceEphemeralStorage: rootVolume,
	}
	kept := corev1.ResourceList{corev1.ResourceEphemeralStorage: diskKept}
	for column, amount := range map[string]corev1.ResourceName{"alloc_cpu": corev1.ResourceCPU, "alloc_memory": corev1.ResourceMemory} {
		left, all := row.quantity(column), capacity[amount]
		if left.Cmp(all) > 0 {
			row.fail(column, "%s is more than the machine has", left.String())
		}
		all.Sub(left)
		kept[amount] = all
	}
	gpus, neurons := row.count("nvidia_gpu"), row.count("neuron")
	if gpus > 0 {
		capacity["nvidia.com/gpu"] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	if neurons > 0 {
		capacity["aws.amazon.com/neuron"] = *resource.NewQuantity(neurons, resource.DecimalSI)
	}
	labels := map[string]string{
		corev1.LabelInstanceTypeStable: name,
		corev1.LabelArchStable:         arch,
		corev1.LabelOSStable:           string(corev1.Linux),
		labelCPU:                       strconv.FormatInt(cpus, 10),
		labelMemory:                    strconv.FormatInt(memory, 10),
	}
	if parts := typeName.FindStringSubmatch(name); parts != nil {
		labels[labelFamily], labels[labelCategory], labels[labelGeneration], labels[labelSize] = parts[1], parts[2], parts[3], parts[4]
	}
	requirements := scheduling.NewLabelRequirements(labels)
	if gpus > 0 {
		requirements.Add(scheduling.NewLabelRequirements(map[string]string{
			labelGPUCount: strconv.FormatInt(gpus, 10), labelGPUMaker: "nvidia",
		}).Values()...)
	} else {
		for _, key := range []string{labelGPUCount, labelGPUMaker, labelGPUName} {
			requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
		}
	}
	return &cloudprovider.InstanceType{
		Name:         name,
		Requirements: requirements,
		Offerings:    offerings,
		Capacity:     capacity,
		Overhead:     &cloudprovider.InstanceTypeOverhead{KubeReserved: kept},
	}
}
