// Command controlplane is a whole Kubernetes control plane in one program.
//
// It carries the unmodified etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, kubectl and kwok, each as a subcommand that takes that
// program's own flags. A link with a part's name, such as kubectl, runs that part. The Python package tests/support/controlplane builds it,
// writes the flags and starts the parts; nothing here knows about vlm-operator.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
)

const usage = "usage: controlplane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubectl|kwok [flags]\n" +
	"       controlplane signing-key FILE"

func main() {
	// Each part parses os.Args by itself, so it must see its own name first.
	// A link with a part's name is that part: then the name is there already.
	if !isPart(os.Args[0]) {
		os.Args = os.Args[1:]
	}
	if len(os.Args) == 0 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	followOwner()
	var command *cobra.Command
	switch filepath.Base(os.Args[0]) {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "kube-apiserver":
		command = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		command = controllermanager.NewControllerManagerCommand()
	case "kube-scheduler":
		command = scheduler.NewSchedulerCommand()
	case "kubectl":
		command = kubectl.NewDefaultKubectlCommand()
	case "kwok":
		command = newKwokCommand()
	case "signing-key":
		if len(os.Args) != 2 {
			fmt.Fprintln(os.Stderr, usage)
			os.Exit(2)
		}
		if err := writeSigningKey(os.Args[1]); err != nil {
			fmt.Fprintf(os.Stderr, "signing key: %v\n", err)
			os.Exit(1)
		}
		return
	default:
		fmt.Fprintf(os.Stderr, "unknown part %q\n%s\n", os.Args[0], usage)
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}

// isPart reports whether the program was called by the name of one of its parts.
func isPart(path string) bool {
	switch filepath.Base(path) {
	case "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok":
		return true
	}
	return false
}

// newKwokCommand returns kwok's command with its configuration already read.
// kwok loads --config before cobra parses anything, so its two flag sets have
// to see the arguments first and then join the command.
func newKwokCommand() *cobra.Command {
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, _ := kwoklog.InitFlags(context.Background(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		fmt.Fprintf(os.Stderr, "kwok configuration: %v\n", err)
		os.Exit(2)
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	command.Version = "" // its --version would collide with component-base's
	command.SetContext(ctx)
	return command
}
