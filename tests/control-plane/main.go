// A Kubernetes control plane for tests: five programs in one binary, because they share most of their code.
//
// The name it is called by (a link, or else the first argument) says which of them this process is.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	// CronJobs name time zones, and a bare machine has no table of them.
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

const usage = "usage: control-plane etcd|kube-apiserver|kube-scheduler|kube-controller-manager|kubectl ..."

func main() {
	role := filepath.Base(os.Args[0])
	if !known(role) {
		if len(os.Args) < 2 || !known(os.Args[1]) {
			fmt.Fprintln(os.Stderr, usage)
			os.Exit(2)
		}
		// The programs read os.Args themselves, so they must find their own name first.
		os.Args = os.Args[1:]
		role = os.Args[0]
	}
	switch role {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kubectl":
		if cli.RunNoErrOutput(commands[role]()) != nil {
			os.Exit(1)
		}
	default:
		os.Exit(cli.Run(commands[role]()))
	}
}

// Made only when asked for: making one registers its flags and metrics for the whole process.
var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func known(role string) bool {
	_, found := commands[role]
	return found || role == "etcd"
}
