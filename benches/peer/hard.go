package main

// Loads that look like large clusters rather than like a benchmark: many pools, many nodes, and many pods that fit nowhere.

import (
	"fmt"
	"math/rand/v2"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
)

var hardZones = []string{"zone-a", "zone-b", "zone-c"}

func statusCondition(name string) status.Condition {
	return status.Condition{Type: name, Status: metav1.ConditionTrue, Reason: name, LastTransitionTime: made}
}

// hardTypes are 40 families of 20 sizes, named as EC2 names its own: four categories of 2 to 16 GiB a processor, ten generations
// of which every third is arm64. Newer is cheaper; what spot saves is drawn, 40 to 70 percent.
func hardTypes(chance *rand.Rand) []saleRow {
	categories := []struct {
		name    string
		gibEach int
	}{{"c", 2}, {"m", 4}, {"r", 8}, {"x", 16}}
	sizes := []int{1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 56, 64, 72, 80, 96, 128}
	var rows []saleRow
	for _, category := range categories {
		for generation := 1; generation <= 10; generation++ {
			arch := "amd64"
			if generation%3 == 0 {
				arch = "arm64"
			}
			micros := (30_000 + 4_000*category.gibEach) * (110 - generation) / 100
			for _, cpus := range sizes {
				row := saleRow{
					name: fmt.Sprintf("%s%d.%dx", category.name, generation, cpus), arch: arch,
					cpus: cpus, memoryMiB: cpus * category.gibEach * 1024, pods: min(15+8*cpus, 250),
					keptMillicores: 60 + 10*cpus/4, keptMiB: 100 + 11*min(15+8*cpus, 250), zones: hardZones,
				}
				row.onDemand = cpus * micros
				row.spot = row.onDemand * (30 + chance.IntN(31)) / 100
				rows = append(rows, row)
			}
		}
	}
	return rows
}

func tolerating(teams ...string) []corev1.Toleration {
	var tolerations []corev1.Toleration
	for _, team := range teams {
		tolerations = append(tolerations, corev1.Toleration{
			Key: "team", Operator: corev1.TolerationOpEqual, Value: team, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	return tolerations
}

// hardPools is ReplicaSets of 50 pods, a team's or everybody's; pools of which every second belongs to a team; daemons that run
// on all nodes, on those of one architecture, or on spot only.
func hardPools(chance *rand.Rand, pods int) input {
	input := input{types: hardTypes(chance)}
	input.objects = append(input.objects, theClass())
	team := func(at int) string { return fmt.Sprintf("team-%02d", at) }
	for at := range 20 {
		pool := pool(fmt.Sprintf("pool-%02d", at), int32(100-at),
			required(labelGeneration, corev1.NodeSelectorOpGt, fmt.Sprint(at%7)),
			required(labelCPU, corev1.NodeSelectorOpLt, pick(chance, "17", "33", "65")),
			required(corev1.LabelArchStable, corev1.NodeSelectorOpIn, [][]string{{"amd64"}, {"amd64", "arm64"}}[at/2%2]...),
			required(karpenter.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, [][]string{{"on-demand"}, {"spot", "on-demand"}}[at/4%2]...),
			required(labelCategory, corev1.NodeSelectorOpIn, pick(chance, []string{"c", "m"}, []string{"m", "r"}, []string{"c", "m", "r", "x"})...),
		)
		pool.Spec.Limits = karpenter.Limits{corev1.ResourceCPU: resource.MustParse(pick(chance, "400", "1000", "4000"))}
		if at%2 == 0 && at < 18 {
			pool.Spec.Template.Labels = map[string]string{"team": team(at)}
			pool.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "team", Value: team(at), Effect: corev1.TaintEffectNoSchedule}}
		}
		input.objects = append(input.objects, pool)
	}
	for at := range 20 {
		spec := podSpec(pick(chance, 10, 25, 50), pick(chance, 16, 32, 64))
		spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		switch at % 5 {
		case 3:
			spec.NodeSelector = map[string]string{corev1.LabelArchStable: pick(chance, "amd64", "arm64")}
		case 4:
			spec.NodeSelector = map[string]string{karpenter.CapacityTypeLabelKey: "spot"}
		}
		input.objects = append(input.objects, daemonSet(fmt.Sprintf("daemon-%02d", at), spec))
	}
	var set string
	var labels map[string]string
	var spec corev1.PodSpec
	for at := range pods {
		if at%50 == 0 {
			set = fmt.Sprintf("set-%03d", at/50)
			labels = map[string]string{"app": set}
			spec = podSpec(50*(1+chance.IntN(40)), 64*(1+chance.IntN(96)))
			hardRules(chance, at/50, set, &spec)
			if at/50%3 == 0 {
				of := team(2 * chance.IntN(9))
				spec.Tolerations = tolerating(of)
				if chance.IntN(2) == 0 {
					spec.NodeSelector = map[string]string{"team": of}
				}
			}
		}
		input.objects = append(input.objects, owned(waitingPod(fmt.Sprintf("%s-%02d", set, at%50), labels, spec), set))
	}
	return input
}

// hardRules gives a set of pods one of the rules that people write.
func hardRules(chance *rand.Rand, at int, app string, spec *corev1.PodSpec) {
	spread := func(key string, skew int32, when corev1.UnsatisfiableConstraintAction) corev1.TopologySpreadConstraint {
		return corev1.TopologySpreadConstraint{
			MaxSkew: skew, TopologyKey: key, WhenUnsatisfiable: when, LabelSelector: selecting("app", app),
		}
	}
	switch at % 8 {
	case 1:
		spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints, spread(corev1.LabelTopologyZone, 1, corev1.DoNotSchedule))
	case 2:
		spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints,
			spread(corev1.LabelTopologyZone, 2, corev1.DoNotSchedule), spread(corev1.LabelHostname, 5, corev1.DoNotSchedule))
	case 3:
		spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints, spread(corev1.LabelHostname, 4, corev1.ScheduleAnyway))
	case 5:
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{pick(chance, hardZones...)},
				}},
			}}},
		}}
	case 7:
		spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
				Weight: 50, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: selecting("app", app)},
			}},
		}}
	}
}

// hardExisting is a node for each waiting pod, three quarters full of pods of 300 sets, and sets of 50 that wait: four of five
// fit somewhere between the others, the fifth fits only on a node that is bought.
func hardExisting(chance *rand.Rand, pods int) input {
	input := input{types: hardTypes(chance)}
	input.objects = append(input.objects, theClass(),
		pool("default", 0, required(labelCPU, corev1.NodeSelectorOpLt, "65"), required(labelGeneration, corev1.NodeSelectorOpGt, "4")))
	var choice []saleRow
	for _, row := range input.types {
		if row.arch == "amd64" && (row.cpus == 8 || row.cpus == 16) {
			choice = append(choice, row)
		}
	}
	for at := range pods {
		name := fmt.Sprintf("node-%05d", at)
		row := choice[chance.IntN(len(choice))]
		claim, node := joined(name, "default", row, pick(chance, "on-demand", "spot"), hardZones[at%3])
		input.objects = append(input.objects, claim, node)
		for slot := range 15 {
			set := fmt.Sprintf("running-%03d", chance.IntN(300))
			// Fifteen of them ask for three quarters in the middle, and for all of it at most.
			spec := podSpec((row.cpus*1000-row.keptMillicores)*(35+chance.IntN(31))/1000, (row.memoryMiB-row.keptMiB)*(35+chance.IntN(31))/1000)
			input.objects = append(input.objects, owned(boundPod(fmt.Sprintf("%s-%05d-%02d", set, at, slot), map[string]string{"app": set}, spec, name), set))
		}
	}
	var set string
	var labels map[string]string
	var spec corev1.PodSpec
	for at := range pods {
		if at%50 == 0 {
			set = fmt.Sprintf("waiting-%03d", at/50)
			labels = map[string]string{"app": set}
			if at/50%5 == 4 {
				spec = podSpec(9000+500*chance.IntN(8), 4096)
			} else {
				spec = podSpec(100*(1+chance.IntN(15)), 256*(1+chance.IntN(8)))
			}
			hardRules(chance, at/50, set, &spec)
		}
		input.objects = append(input.objects, owned(waitingPod(fmt.Sprintf("%s-%02d", set, at%50), labels, spec), set))
	}
	return input
}

// hardUnschedulable is equal pods that ask for more memory than any machine has, among as many plain ones.
func hardUnschedulable(chance *rand.Rand, pods int) input {
	objects := mixCluster()
	for at := range pods / 2 {
		objects = append(objects, plainPod(chance, fmt.Sprintf("plain-%05d", at)))
	}
	for at := range pods - pods/2 {
		objects = append(objects, waitingPod(fmt.Sprintf("stuck-%05d", at), map[string]string{"app": "stuck"}, podSpec(1000, 1<<20)))
	}
	return input{objects, mixTypes()}
}
