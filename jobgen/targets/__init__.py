"""From a job to an artifact that a cluster takes: words (quoting), Slurm, Kubernetes, hosts, local."""
