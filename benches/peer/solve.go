package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/utils/node"
)

// request is what to solve, and how.
type request struct {
	snapshot, catalog  string
	repeat, cores      int
	ignoresPreferences bool
}

// figures is what Karpenter's scheduler made of an input, and what that took.
type figures struct {
	Engine  string `json:"engine"`
	Cores   int    `json:"cores"`
	Waiting int    `json:"pods"`
	Placed  int    `json:"placed"`
	// Unschedulable counts the pods that wait and got no place, those that were refused unseen included.
	Unschedulable int     `json:"unschedulable"`
	NewNodes      int     `json:"newNodes"`
	UsdPerHour    float64 `json:"usdPerHour"`
	// SolveMs is the best of the runs: Solve alone, with a scheduler made anew each time. It is what the clock says or the
	// processor time, whichever is less, so that others on the machine do not make it slower than it is.
	SolveMs float64 `json:"solveMs"`
	// ConstructMs is the best time for what comes before Solve in each round: pods, topology, scheduler.
	ConstructMs     float64   `json:"constructMs"`
	EachClockMs     []float64 `json:"eachClockMs"`
	EachProcessorMs []float64 `json:"eachProcessorMs"`
	// PeakMemoryBytes is of the whole process, reading files included.
	PeakMemoryBytes int64 `json:"peakMemoryBytes"`
}

// catalogProvider sells what a catalogue lists. Nothing is ever launched, so nothing else of a provider is here.
type catalogProvider struct {
	cloudprovider.CloudProvider
	types []*cloudprovider.InstanceType
}

func (provider catalogProvider) GetInstanceTypes(context.Context, *karpenter.NodePool) ([]*cloudprovider.InstanceType, error) {
	return provider.types, nil
}

func (provider catalogProvider) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&nodeClass{}}
}

func (provider catalogProvider) Name() string { return "catalog" }

// round is what one round of Karpenter's provisioner needs.
type round struct {
	store       *store
	cluster     *state.Cluster
	provisioner *provisioning.Provisioner
	recorder    events.Recorder
	clock       clock.Clock
	options     []scheduling.Options
}

func solve(request request) (*figures, error) {
	runtime.GOMAXPROCS(request.cores)
	controllerruntime.SetLogger(logr.Discard())
	ctx := injection.WithControllerName(context.Background(), "provisioner")
	settings := &options.Options{
		CPURequests:       int64(request.cores) * 1000,
		BatchMaxDuration:  10 * time.Second,
		BatchIdleDuration: time.Second,
		PreferencePolicy:  options.PreferencePolicyRespect,
		MinValuesPolicy:   options.MinValuesPolicyStrict,
		IgnoreDRARequests: true,
		FeatureGates:      options.FeatureGates{ReservedCapacity: true},
	}
	if request.ignoresPreferences {
		settings.PreferencePolicy = options.PreferencePolicyIgnore
	}
	ctx = options.ToContext(ctx, settings)
	round, err := prepare(ctx, request)
	if err != nil {
		return nil, err
	}

	result := &figures{Engine: engine(), Cores: request.cores, SolveMs: math.Inf(1), ConstructMs: math.Inf(1)}
	for range request.repeat {
		runtime.GC()
		if err := round.run(ctx, result); err != nil {
			return nil, err
		}
	}
	result.PeakMemoryBytes = used().Maxrss
	if runtime.GOOS != "darwin" {
		result.PeakMemoryBytes *= 1024
	}
	return result, nil
}

// prepare reads the files and lets Karpenter's picture of the cluster learn of every object, as its informers would.
func prepare(ctx context.Context, request request) (*round, error) {
	catalog, err := os.Open(request.catalog)
	if err != nil {
		return nil, err
	}
	defer catalog.Close()
	types, err := readCatalog(catalog, request.catalog)
	if err != nil {
		return nil, err
	}
	objects, err := readSnapshot(request.snapshot)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		switch object := object.(type) {
		case *karpenter.NodePool:
			// A manifest that was never applied says nothing of being ready.
			if len(object.Status.Conditions) == 0 {
				object.StatusConditions().SetTrue(karpenter.ConditionTypeValidationSucceeded)
				object.StatusConditions().SetTrue(karpenter.ConditionTypeNodeClassReady)
			}
		case *corev1.Pod:
			// Karpenter keeps what it knows of a pod by its UID.
			if object.UID == "" {
				object.UID = uidOf("Pod", object.Namespace, object.Name)
			}
		}
	}

	round := &round{store: newStore(objects), clock: clock.RealClock{}, recorder: events.NewRecorder(&record.FakeRecorder{})}
	provider := catalogProvider{types: types}
	round.cluster = state.NewCluster(round.clock, round.store, provider)
	round.provisioner = provisioning.NewProvisioner(round.store, round.recorder, provider, round.cluster, round.clock, nil, nil)
	err = each(round.store, func(claim *karpenter.NodeClaim) error { round.cluster.UpdateNodeClaim(claim); return nil })
	if err == nil {
		err = each(round.store, func(node *corev1.Node) error { return round.cluster.UpdateNode(ctx, node) })
	}
	if err == nil {
		err = each(round.store, func(set *appsv1.DaemonSet) error { return round.cluster.UpdateDaemonSet(ctx, set) })
	}
	if err == nil {
		err = each(round.store, func(pod *corev1.Pod) error { return round.cluster.UpdatePod(ctx, pod) })
	}
	// As its controller does, but for the minute after which that gives up.
	round.options = []scheduling.Options{
		scheduling.DisableReservedCapacityFallback,
		scheduling.NumConcurrentReconciles(request.cores),
		scheduling.MinValuesPolicy(options.MinValuesPolicyStrict),
	}
	if request.ignoresPreferences {
		round.options = append(round.options, scheduling.IgnorePreferences)
	}
	return round, err
}

// run solves once and keeps the better times.
func (round *round) run(ctx context.Context, result *figures) error {
	since := time.Now()
	nodes := round.cluster.DeepCopyNodes()
	pods, err := round.provisioner.GetPendingPods(ctx)
	if err != nil {
		return err
	}
	leaving, err := nodes.Deleting().CurrentlyReschedulablePods(ctx, round.store, round.clock, round.recorder)
	if err != nil {
		return err
	}
	uids := sets.New[types.UID]()
	for _, pod := range leaving {
		uids.Insert(pod.UID)
	}
	pods = append(pods, leaving...)
	scheduler, err := round.provisioner.NewScheduler(ctx, pods, nodes.Active(), uids, round.options...)
	if err != nil {
		return fmt.Errorf("making Karpenter's scheduler: %w", err)
	}
	result.ConstructMs = math.Min(result.ConstructMs, milliseconds(time.Since(since)))

	since = time.Now()
	before := processorTime()
	solved, err := scheduler.Solve(ctx, pods)
	took, worked := milliseconds(time.Since(since)), processorTime()-before
	if err != nil {
		return fmt.Errorf("Karpenter's scheduler: %w", err)
	}
	result.SolveMs = min(result.SolveMs, took, milliseconds(worked))
	result.EachClockMs = append(result.EachClockMs, took)
	result.EachProcessorMs = append(result.EachProcessorMs, milliseconds(worked))

	waiting, err := node.GetProvisionablePods(ctx, round.store)
	if err != nil {
		return err
	}
	result.Waiting, result.Placed = len(waiting)+len(leaving), 0
	result.NewNodes, result.UsdPerHour = len(solved.NewNodeClaims), 0
	for _, existing := range solved.ExistingNodes {
		result.Placed += len(existing.Pods)
	}
	for _, claim := range solved.NewNodeClaims {
		result.Placed += len(claim.Pods)
		price, err := cheapest(claim)
		if err != nil {
			return err
		}
		result.UsdPerHour += price
	}
	result.UsdPerHour = math.Round(result.UsdPerHour*1e6) / 1e6
	result.Unschedulable = result.Waiting - result.Placed
	return nil
}

// cheapest is the price of the cheapest offering that is open to a claim.
func cheapest(claim *scheduling.NodeClaim) (float64, error) {
	least := math.Inf(1)
	for _, kind := range claim.InstanceTypeOptions {
		for _, offering := range kind.Offerings.Available().Compatible(claim.Requirements) {
			least = math.Min(least, offering.Price)
		}
	}
	if math.IsInf(least, 1) {
		return 0, fmt.Errorf("a claim of pool %s has no offering that it may be launched as", claim.NodePoolName)
	}
	return least, nil
}

// engine names Karpenter's version, as the build knows it.
func engine() string {
	if build, isKnown := debug.ReadBuildInfo(); isKnown {
		for _, module := range build.Deps {
			if module.Path == "sigs.k8s.io/karpenter" {
				return "karpenter " + module.Version
			}
		}
	}
	return "karpenter"
}

// used is what this process has used so far.
func used() syscall.Rusage {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(fmt.Sprintf("a process may always ask what it used: %v", err))
	}
	return usage
}

func processorTime() time.Duration {
	soFar := used()
	return time.Duration(soFar.Utime.Nano() + soFar.Stime.Nano())
}

func milliseconds(duration time.Duration) float64 {
	return math.Round(duration.Seconds()*1e6) / 1e3
}
