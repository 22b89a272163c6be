"""One internal description of a job: command, environment, files, mounts, resources and lifecycle. Knows no scheduler."""
