package main

// The two loads of Karpenter's own benchmark (scheduling_benchmark_test.go of its module): the same shares, shapes, amounts and
// machines, drawn by a generator of ours.

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// mixTypes are 400 machines of one processor more each, 2 GiB and ten pods for each of them. A processor costs 0.1 $ an hour, as
// do 10⁹ bytes of memory, spot or not; the third zone sells no spot.
func mixTypes() []saleRow {
	var rows []saleRow
	for cpus := 1; cpus <= 400; cpus++ {
		row := saleRow{
			name: fmt.Sprintf("fake-it-%d", cpus-1), arch: "amd64", cpus: cpus, memoryMiB: cpus * 2048, pods: cpus * 10,
			keptMillicores: 100, keptMiB: 10,
		}
		row.onDemand = cpus*100_000 + int(int64(cpus)*(2<<30)/10_000)
		row.spot, row.zones = row.onDemand, []string{"test-zone-1", "test-zone-2"}
		rows = append(rows, row)
		row.spot, row.zones = 0, []string{"test-zone-3"}
		rows = append(rows, row)
	}
	return rows
}

func mixCluster() []client.Object {
	pool := pool("default", 0)
	pool.Spec.Limits = karpenter.Limits{
		corev1.ResourceCPU: resource.MustParse("10000000"), corev1.ResourceMemory: resource.MustParse("10000000Gi"),
	}
	return []client.Object{theClass(), pool}
}

func mixSpec(chance *rand.Rand) corev1.PodSpec {
	return podSpec(pick(chance, 100, 250, 500, 1000, 1500), pick(chance, 100, 256, 512, 1024, 2048, 4096))
}

func mixLabel(chance *rand.Rand) string {
	return pick(chance, "a", "b", "c", "d", "e", "f", "g")
}

func plainPod(chance *rand.Rand, name string) *corev1.Pod {
	labels := map[string]string{"my-label": mixLabel(chance)}
	return waitingPod(name, labels, mixSpec(chance))
}

// spreadPod counts pods of some label by key, not always of its own.
func spreadPod(chance *rand.Rand, name, key string) *corev1.Pod {
	pod := plainPod(chance, name)
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: selecting("my-label", mixLabel(chance)),
	}}
	return pod
}

// togetherPod wants to be in the zone of those with its own label.
func togetherPod(chance *rand.Rand, name string) *corev1.Pod {
	label := mixLabel(chance)
	pod := waitingPod(name, map[string]string{"my-affinity": label}, mixSpec(chance))
	pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelTopologyZone, LabelSelector: selecting("my-affinity", label),
		}},
	}}
	return pod
}

// apartPod wants a node without its like.
func apartPod(chance *rand.Rand, name string) *corev1.Pod {
	pod := waitingPod(name, map[string]string{"app": "nginx"}, mixSpec(chance))
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: selecting("app", "nginx"),
		}},
	}}
	return pod
}

func selecting(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// diverse is a fifth each of five sorts of pods, and plain ones for what does not divide.
func diverse(chance *rand.Rand, pods int) input {
	objects := mixCluster()
	share := pods / 5
	sorts := []struct {
		name string
		many int
		make func(name string) *corev1.Pod
	}{
		{"plain", share + pods%5, func(name string) *corev1.Pod { return plainPod(chance, name) }},
		{"zones", share, func(name string) *corev1.Pod { return spreadPod(chance, name, corev1.LabelTopologyZone) }},
		{"nodes", share, func(name string) *corev1.Pod { return spreadPod(chance, name, corev1.LabelHostname) }},
		{"together", share, func(name string) *corev1.Pod { return togetherPod(chance, name) }},
		{"apart", share, func(name string) *corev1.Pod { return apartPod(chance, name) }},
	}
	for _, sort := range sorts {
		for at := range sort.many {
			objects = append(objects, sort.make(fmt.Sprintf("%s-%05d", sort.name, at)))
		}
	}
	return input{objects, mixTypes()}
}

// preference is equal pods that would like to be in one zone, and each without the others in its zone and on its node.
func preference(chance *rand.Rand, pods int) input {
	objects := mixCluster()
	spec := mixSpec(chance)
	apart := func(weight int32, key string) corev1.WeightedPodAffinityTerm {
		return corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: corev1.PodAffinityTerm{
			TopologyKey: key, LabelSelector: selecting("app", "nginx"),
		}}
	}
	spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"test-zone-1"},
			}}},
		}}},
		PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			apart(10, corev1.LabelTopologyZone), apart(1, corev1.LabelHostname),
		}},
	}
	for at := range pods {
		objects = append(objects, waitingPod(fmt.Sprintf("prefers-%05d", at), map[string]string{"app": "nginx"}, spec))
	}
	return input{objects, mixTypes()}
}
