package main

// Small clusters of all sorts, no two alike: what one large load never meets.

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// variedCluster is one of them as it is drawn.
type variedCluster struct {
	input
	chance *rand.Rand
	// sets are the groups of equal pods, by the label that they carry.
	sets []string
}

// varied is up to four pools, up to ten nodes with pods on them, up to two daemons, and groups of waiting pods with up to two
// rules each, some about pods of another group.
func varied(chance *rand.Rand, pods int) input {
	of := variedCluster{chance: chance}
	for _, row := range hardTypes(chance) {
		if chance.IntN(6) == 0 {
			of.types = append(of.types, row)
		}
	}
	of.objects = append(of.objects, theClass())
	for at := range 1 + chance.IntN(4) {
		of.objects = append(of.objects, of.pool(fmt.Sprintf("pool-%d", at)))
	}
	for at := range chance.IntN(3) {
		of.objects = append(of.objects, daemonSet(fmt.Sprintf("daemon-%d", at), podSpec(pick(chance, 20, 100), pick(chance, 32, 128))))
	}
	for at := range 1 + chance.IntN(8) {
		of.sets = append(of.sets, fmt.Sprintf("set-%d", at))
	}
	if chance.IntN(2) == 0 {
		of.nodes(1 + chance.IntN(10))
	}
	of.waiting(pods)
	return of.input
}

// one says whether something that happens one in so many times does.
func (of *variedCluster) one(in int) bool {
	return of.chance.IntN(in) == 0
}

func (of *variedCluster) pool(name string) *karpenter.NodePool {
	chance := of.chance
	// The first takes everybody, so that most pods have a place.
	isPlain := name == "pool-0"
	requirements := []karpenter.NodeSelectorRequirementWithMinValues{
		required(karpenter.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, pick(chance, []string{"on-demand"}, []string{"spot", "on-demand"}, []string{"spot"})...),
	}
	if of.one(2) {
		requirements = append(requirements, required(corev1.LabelArchStable, corev1.NodeSelectorOpIn, "amd64"))
	}
	if of.one(3) {
		requirements = append(requirements, required(labelCPU, corev1.NodeSelectorOpLt, pick(chance, "9", "17", "33")))
	}
	if of.one(4) {
		requirements = append(requirements, required(labelGeneration, corev1.NodeSelectorOpGt, pick(chance, "2", "5")))
	}
	if !isPlain && of.one(3) {
		requirements = append(requirements, required(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, hardZones[:1+chance.IntN(2)]...))
	}
	if of.one(6) {
		several := required(labelFamily, corev1.NodeSelectorOpExists)
		least := 2 + chance.IntN(4)
		several.MinValues = &least
		requirements = append(requirements, several)
	}
	pool := pool(name, int32(chance.IntN(3)*10), requirements...)
	if isPlain {
		return pool
	}
	if of.one(3) {
		pool.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
	}
	if of.one(3) {
		pool.Spec.Template.Labels = map[string]string{"tier": pick(chance, "front", "back")}
	}
	if of.one(3) {
		pool.Spec.Limits = karpenter.Limits{corev1.ResourceCPU: resource.MustParse(pick(chance, "16", "40", "100"))}
	}
	return pool
}

// nodes are there, with pods of any group.
func (of *variedCluster) nodes(count int) {
	chance := of.chance
	for at := range count {
		row := of.types[chance.IntN(len(of.types))]
		name := fmt.Sprintf("node-%d", at)
		claim, node := joined(name, "pool-0", row, pick(chance, "on-demand", "spot"), pick(chance, hardZones...))
		of.objects = append(of.objects, claim, node)
		for slot := range chance.IntN(6) {
			set := pick(chance, of.sets...)
			spec := podSpec((row.cpus*1000-row.keptMillicores)*chance.IntN(160)/1000, (row.memoryMiB-row.keptMiB)*chance.IntN(160)/1000)
			of.objects = append(of.objects, owned(boundPod(fmt.Sprintf("%s-on-%d-%d", set, at, slot), map[string]string{"app": set}, spec, name), set))
		}
	}
}

func (of *variedCluster) waiting(pods int) {
	chance := of.chance
	specs := make([]corev1.PodSpec, len(of.sets))
	for at, set := range of.sets {
		specs[at] = podSpec(pick(chance, 50, 100, 250, 500, 900, 1500, 3000, 7000), pick(chance, 64, 256, 1024, 2048, 6144, 20000))
		for range chance.IntN(3) {
			of.rule(set, &specs[at])
		}
	}
	for at := range pods {
		which := chance.IntN(len(of.sets))
		set := of.sets[which]
		of.objects = append(of.objects, owned(waitingPod(fmt.Sprintf("%s-%03d", set, at), map[string]string{"app": set}, specs[which]), set))
	}
}

// rule gives the pods of a set one more rule.
func (of *variedCluster) rule(set string, spec *corev1.PodSpec) {
	chance := of.chance
	if spec.NodeSelector == nil {
		spec.NodeSelector = map[string]string{}
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	key := pick(chance, corev1.LabelTopologyZone, corev1.LabelHostname)
	about := set
	if of.one(4) {
		about = pick(chance, of.sets...)
	}
	term := corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: selecting("app", about)}
	where := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	switch chance.IntN(13) {
	case 0:
		spec.NodeSelector[corev1.LabelTopologyZone] = pick(chance, hardZones...)
	case 1:
		spec.NodeSelector[karpenter.CapacityTypeLabelKey] = pick(chance, "spot", "on-demand")
	case 2:
		spec.NodeSelector[corev1.LabelArchStable] = pick(chance, "amd64", "arm64")
	case 3, 4:
		spread := corev1.TopologySpreadConstraint{
			MaxSkew: int32(1 + chance.IntN(3)), TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selecting("app", set),
		}
		if of.one(4) {
			spread.WhenUnsatisfiable = corev1.ScheduleAnyway
		} else if key == corev1.LabelTopologyZone && of.one(5) {
			least := int32(2 + chance.IntN(2))
			spread.MinDomains = &least
		}
		// Two of one key and effect would be refused by the API.
		if len(spec.TopologySpreadConstraints) == 0 {
			spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints, spread)
		}
	case 5:
		spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
	case 6:
		spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
	case 7:
		spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{Weight: int32(1 + chance.IntN(100)), PodAffinityTerm: term},
		}}
	case 8:
		spec.Affinity.PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{Weight: int32(1 + chance.IntN(100)), PodAffinityTerm: term},
		}}
	case 9:
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{
				where("tier", corev1.NodeSelectorOpIn, "front"),
				where(corev1.LabelTopologyZone, pick(chance, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn), pick(chance, hardZones...)),
			},
		}}
	case 10:
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: 10, Preference: where(labelCategory, corev1.NodeSelectorOpIn, pick(chance, "c", "m", "r"))},
			{Weight: 5, Preference: where(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, pick(chance, hardZones...))},
		}}
	case 11:
		spec.Tolerations = tolerating("a")
	case 12:
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{where(labelCPU, corev1.NodeSelectorOpGt, pick(chance, "3", "7"))},
		}}
	}
}
