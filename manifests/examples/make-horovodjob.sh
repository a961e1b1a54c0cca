#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make-horovodjob.sh: writes horovodjob.yaml, the example with the training script inside, to
# standard output. tests/lint/docs.sh compares it with the file.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cat <<'EOF'
# SPDX-License-Identifier: Apache-2.0
# Two workers train a small network on handwritten digits; each sees only half of the digits, so
# that only averaging over both can learn all ten.
#
#   kubectl apply -f horovodjob.yaml
#   kubectl get hvdjob demo --watch
#   kubectl logs -f demo-worker-0
#
# The script is runtime/examples/train_digits.py, put here so that one file is all it takes; in a
# job of yours it is in the image, and the command is ["python3", "/app/train.py"].
apiVersion: ringmaster.dev/v1beta1
kind: HorovodJob
metadata:
  name: demo
spec:
  slotsPerWorker: 1
  replicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          topologySpreadConstraints:
          - maxSkew: 1
            topologyKey: kubernetes.io/hostname
            whenUnsatisfiable: ScheduleAnyway
            labelSelector:
              matchLabels: {ringmaster.dev/job-name: demo}
          containers:
          - name: train
            image: localhost/train-torch:1
            imagePullPolicy: IfNotPresent
            resources:
              requests: {cpu: 100m, memory: 256Mi}
            command: [python3, -c]
            args:
            - |
EOF
sed -e 's/^/              /' -e 's/ *$//' "$root/runtime/examples/train_digits.py"
