// SPDX-License-Identifier: Apache-2.0

// In place of mpi-operator's own startController: hvd-operator as a process, under the rights that
// manifests/ gives it. upstream.sh puts this file beside the tests; it is no part of any Go module here.
package integration

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/client-go/kubernetes"

	clientset "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
)

var (
	install  = sync.OnceValue(installed)
	previous *exec.Cmd
)

func must(what string, err error) {
	if err != nil {
		panic(fmt.Sprintf("%s: %v", what, err))
	}
}

func writeConfig(name, user string) string {
	path := filepath.Join(os.Getenv("WORK"), name)
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://%s", certificate-authority-data: %s}}]
users: [{name: u, user: %s}]
`, strings.TrimPrefix(restConfig.Host, "https://"), base64.StdEncoding.EncodeToString(restConfig.CAData), user)
	must(name, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Runs a command of the shell in $SETUP with KUBECONFIG of the administrator; what it prints last is a
// token of the operator's service account, with which its kubeconfig is written.
func installed() string {
	admin := writeConfig("admin.kubeconfig", fmt.Sprintf("{client-certificate-data: %s, client-key-data: %s}",
		base64.StdEncoding.EncodeToString(restConfig.CertData),
		base64.StdEncoding.EncodeToString(restConfig.KeyData)))
	setup := exec.Command("bash", "-c", os.Getenv("SETUP"))
	setup.Env = append(os.Environ(), "KUBECONFIG="+admin)
	setup.Stderr = os.Stderr
	token, err := setup.Output()
	must("setup", err)
	lines := strings.Fields(string(token))
	return writeConfig("operator.kubeconfig", fmt.Sprintf("{token: %q}", lines[len(lines)-1]))
}

func startController(ctx context.Context, _ kubernetes.Interface, _ clientset.Interface, gang *gangSchedulerConfig) {
	config := install()
	if previous != nil { // its context is over: only one may act
		_ = previous.Wait()
	}
	args := append(strings.Fields(os.Getenv("OPERATOR")), config)
	if gang != nil && gang.schedulerName != "" {
		args = append(args, "--gang-scheduling="+gang.schedulerName)
	}
	log, err := os.OpenFile(filepath.Join(os.Getenv("WORK"), "operator.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must("operator.log", err)
	defer log.Close()
	previous = exec.CommandContext(ctx, args[0], args[1:]...)
	previous.Stdout, previous.Stderr = log, log
	must("operator", previous.Start())
}
