// SPDX-License-Identifier: Apache-2.0

// One binary that is a whole Kubernetes for tests: it acts as the component that its own
// name says (or its first argument, when its name says none). The components share most of
// their packages, so one link is far cheaper than nine.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	_ "time/tzdata"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/ready"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

func run(f func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(f())) }
}

func runCoreDNS() {
	dnsserver.Directives = []string{"bind", "errors", "health", "ready", "cache",
		"loadbalance", "kubernetes"}
	coremain.Run()
}

// kubectl prints its errors itself and chooses the exit status by them.
func runKubectl() {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}

func runKwok() {
	// component-base has put a --version flag that is no boolean into the global set, and
	// kwok's command would find that one.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ExitOnError)
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsWhitelist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, logger := kwoklog.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		logger.Error("Init config flags", err)
		os.Exit(1)
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		logger.Error("Execute exit", err)
		os.Exit(1)
	}
}

func main() {
	components := map[string]func(){
		"etcd":                    func() { etcdmain.Main(os.Args) },
		"kube-apiserver":          run(apiserver.NewAPIServerCommand),
		"kube-controller-manager": run(kcm.NewControllerManagerCommand),
		"kube-scheduler": run(func() *cobra.Command {
			return scheduler.NewSchedulerCommand()
		}),
		"kubelet": run(func() *cobra.Command {
			return kubelet.NewKubeletCommand(context.Background())
		}),
		"kube-proxy": run(proxy.NewProxyCommand),
		"coredns":    runCoreDNS,
		"kubectl":    runKubectl,
		"kwok":       runKwok,
	}
	name := filepath.Base(os.Args[0])
	if components[name] == nil && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	if f := components[name]; f != nil {
		f()
		return
	}
	var names []string
	for n := range components {
		names = append(names, n)
	}
	sort.Strings(names)
	fmt.Fprintln(os.Stderr, "usage: kube-all COMPONENT [ARG...], where COMPONENT is one of",
		strings.Join(names, ", "))
	os.Exit(2)
}
