"""Where jobs go and how they are followed: Slurm and this machine (submitit), Kubernetes, receipts."""
