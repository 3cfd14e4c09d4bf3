package main

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// made is when everything was made: inputs know no clock.
var made = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

// uidOf is a UID that depends on the name only: Karpenter breaks ties by it.
func uidOf(kind, namespace, name string) types.UID {
	sum := sha256.Sum256([]byte(kind + "/" + namespace + "/" + name))
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
}

func metadata(kind, namespace, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: uidOf(kind, namespace, name), Labels: labels, CreationTimestamp: made,
	}
}

// pick draws one of several.
func pick[T any](chance *rand.Rand, from ...T) T {
	return from[chance.IntN(len(from))]
}

func cores(millicores int) resource.Quantity {
	return *resource.NewMilliQuantity(int64(millicores), resource.DecimalSI)
}

func mebibytes(count int) resource.Quantity {
	return *resource.NewQuantity(int64(count)<<20, resource.BinarySI)
}

func podSpec(millicores, memoryMiB int) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: "registry.k8s.io/pause:3.10",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: cores(millicores), corev1.ResourceMemory: mebibytes(memoryMiB),
		}},
	}}}
}

// waitingPod has been given up by the scheduler of the cluster.
func waitingPod(name string, labels map[string]string, spec corev1.PodSpec) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metadata("Pod", "default", name, labels),
		Spec:       spec,
		Status: corev1.PodStatus{
			Phase: corev1.PodPending,
			Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: made,
			}},
		},
	}
}

// boundPod runs on a node.
func boundPod(name string, labels map[string]string, spec corev1.PodSpec, node string) *corev1.Pod {
	pod := waitingPod(name, labels, spec)
	pod.Spec.NodeName = node
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: made},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: made},
	}}
	return pod
}

// owned makes a pod one of a ReplicaSet.
func owned(pod *corev1.Pod, replicaSet string) *corev1.Pod {
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: replicaSet, UID: uidOf("ReplicaSet", pod.Namespace, replicaSet),
		Controller: &yes, BlockOwnerDeletion: &yes,
	}}
	return pod
}

func theClass() *nodeClass {
	return &nodeClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: nodeClassKind.GroupVersion().String(), Kind: nodeClassKind.Kind},
		ObjectMeta: metadata("EC2NodeClass", "", "default", nil),
		Spec: map[string]any{
			"amiSelectorTerms":           []any{map[string]any{"alias": "al2023@latest"}},
			"role":                       "nodes",
			"securityGroupSelectorTerms": []any{map[string]any{"tags": map[string]any{"cluster": "peer"}}},
			"subnetSelectorTerms":        []any{map[string]any{"tags": map[string]any{"cluster": "peer"}}},
		},
	}
}

func pool(name string, weight int32, requirements ...karpenter.NodeSelectorRequirementWithMinValues) *karpenter.NodePool {
	pool := &karpenter.NodePool{
		TypeMeta:   metav1.TypeMeta{APIVersion: "karpenter.sh/v1", Kind: "NodePool"},
		ObjectMeta: metadata("NodePool", "", name, nil),
	}
	pool.Spec.Template.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: nodeClassKind.Group, Kind: nodeClassKind.Kind, Name: "default"}
	pool.Spec.Template.Spec.Requirements = requirements
	pool.Spec.Template.Spec.ExpireAfter = karpenter.MustParseNillableDuration("Never")
	pool.Spec.Disruption.ConsolidateAfter = karpenter.MustParseNillableDuration("30s")
	pool.Spec.Disruption.ConsolidationPolicy = karpenter.ConsolidationPolicyWhenEmptyOrUnderutilized
	if weight > 0 {
		pool.Spec.Weight = &weight
	}
	return pool
}

func required(key string, operator corev1.NodeSelectorOperator, values ...string) karpenter.NodeSelectorRequirementWithMinValues {
	return karpenter.NodeSelectorRequirementWithMinValues{Key: key, Operator: operator, Values: values}
}

func daemonSet(name string, spec corev1.PodSpec) *appsv1.DaemonSet {
	labels := map[string]string{"daemon": name}
	set := &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metadata("DaemonSet", "kube-system", name, labels),
	}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	set.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}
	return set
}

// joined is a claim of `pool` and its node, both ready.
func joined(name, pool string, row saleRow, way, zone string) (*karpenter.NodeClaim, *corev1.Node) {
	labels := map[string]string{
		karpenter.NodePoolLabelKey: pool, karpenter.CapacityTypeLabelKey: way,
		corev1.LabelInstanceTypeStable: row.name, corev1.LabelTopologyZone: zone,
		corev1.LabelArchStable: row.arch, corev1.LabelOSStable: string(corev1.Linux),
		karpenter.NodeClassLabelKey(nodeClassKind.GroupKind()): "default",
	}
	if parts := typeName.FindStringSubmatch(row.name); parts != nil {
		labels[labelFamily], labels[labelCategory], labels[labelGeneration], labels[labelSize] = parts[1], parts[2], parts[3], parts[4]
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: cores(row.cpus * 1000), corev1.ResourceMemory: mebibytes(row.memoryMiB),
		corev1.ResourcePods: *resource.NewQuantity(int64(row.pods), resource.DecimalSI), corev1.ResourceEphemeralStorage: rootVolume,
	}
	room := capacity.DeepCopy()
	room[corev1.ResourceCPU] = cores(row.cpus*1000 - row.keptMillicores)
	room[corev1.ResourceMemory] = mebibytes(row.memoryMiB - row.keptMiB)
	room[corev1.ResourceEphemeralStorage] = resource.MustParse("17Gi")
	provider := "aws:///" + zone + "/i-" + strings.ReplaceAll(string(uidOf("Instance", "", name)), "-", "")[:17]

	claim := &karpenter.NodeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim"},
		ObjectMeta: metadata("NodeClaim", "", name, labels),
	}
	claim.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: nodeClassKind.Group, Kind: nodeClassKind.Kind, Name: "default"}
	claim.Spec.Requirements = []karpenter.NodeSelectorRequirementWithMinValues{
		required(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, row.name),
	}
	claim.Spec.ExpireAfter = karpenter.MustParseNillableDuration("Never")
	claim.Status.ProviderID, claim.Status.NodeName = provider, name
	claim.Status.Capacity, claim.Status.Allocatable = capacity, room
	for _, condition := range []string{
		karpenter.ConditionTypeLaunched, karpenter.ConditionTypeRegistered, karpenter.ConditionTypeInitialized, "Ready",
	} {
		claim.Status.Conditions = append(claim.Status.Conditions, statusCondition(condition))
	}

	shown := map[string]string{
		corev1.LabelHostname: name, karpenter.NodeRegisteredLabelKey: "true", karpenter.NodeInitializedLabelKey: "true",
	}
	for key, value := range labels {
		shown[key] = value
	}
	node := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metadata("Node", "", name, shown),
		Spec:       corev1.NodeSpec{ProviderID: provider},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: made}},
		},
	}
	return claim, node
}
