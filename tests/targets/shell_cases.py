"""Specs whose scripts are kept as golden files: every launcher, container and shape of a job once."""

from typing import Any

PYXIS: dict[str, Any] = {
    "slurm__container": "pyxis", "launch__image": "nvcr.io/nvidia/pytorch:25.09-py3",
    "volumes": [{"mount": "/shared", "path": "/lustre/shared"}, {"mount": "/data", "path": "/lustre/data", "read_only": True}, {"mount": "/local", "scratch": True}],
}  # fmt: skip
APPTAINER = PYXIS | {"slurm__container": "apptainer", "launch__image": "/images/train.sif"}
TRANSFORMERS: dict[str, Any] = {"training__framework": "transformers", "training__versions": {"transformers": "4.57.1"}}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "torchrun-2-nodes": ("slurm", TRANSFORMERS | {"launch__restarts": 3}),
    "torchrun-1-node": ("slurm", {"resources__nodes": 1, "resources__gpus_per_node": 8}),
    "torchrun-module": ("slurm", {"launch__entrypoint": None, "launch__module": "pkg.train", "launch__args": ["--lr", "1e-4"]}),
    "accelerate": ("slurm", {"launch__launcher": "accelerate", "parallelism__sharding": "fsdp2"}),
    "deepspeed": ("slurm", {"launch__launcher": "deepspeed", "training__framework": "deepspeed", "parallelism__sharding": "zero3"}),
    "srun": ("slurm", {"launch__launcher": "srun", "slurm__gpu_option": "gres"}),
    "term": ("slurm", TRANSFORMERS | APPTAINER | {"slurm__signal": "TERM", "launch__restarts": 2, "resources__fabric": "infiniband"}),
    "python": ("slurm", {"launch__launcher": "python", "resources__nodes": 1}),
    "llama-factory": ("slurm", {"training__framework": "llama-factory", "launch__entrypoint": None, "launch__launcher": None,
                                "training__options": {"dataset": "alpaca_en_demo", "template": "qwen"}}),
    "axolotl": ("slurm", {"training__framework": "axolotl", "launch__entrypoint": None, "launch__launcher": None,
                          "launch__command": ["axolotl", "train", "{config}"], "training__options": {"datasets": [{"path": "x", "type": "alpaca"}]}}),
    "pyxis": ("slurm", PYXIS | {"launch__setup": ["nvidia-smi -pm 1"], "launch__prepare": ["hf download Qwen/Qwen3-8B"],
                                "launch__stage": [{"from": "/data/set", "to": "/local/set"}], "launch__finish": ["python eval.py"],
                                "launch__secrets": ["HF_TOKEN"], "launch__working_directory": "/workspace", "launch__restarts": 1}),
    "apptainer": ("slurm", APPTAINER | {"launch__setup": ["module load apptainer"], "launch__secrets": ["HF_TOKEN"]}),
    "conda": ("slurm", {"launch__python": {"conda": "my env"}, "launch__setup": ["module load cuda/12.8"]}),
    "uv": ("slurm", {"launch__python": {"uv": "./project"}}),
    "gib": ("slurm", PYXIS | {"resources__fabric": "gcp-gib", "launch__env": {"NCCL_DEBUG": "INFO"}}),
    "everything": ("slurm", {
        "resources__gpus_per_node": 8, "slurm__partition": "gpu", "slurm__qos": "normal", "slurm__constraint": "ib&h100",
        "slurm__reservation": "res", "slurm__requeue": True, "slurm__signal_before": "5m", "slurm__signal": "USR2", "slurm__output": "/shared/logs of mine",
        "slurm__srun_args": ["--mpi=pmix"], "slurm__master_addr_suffix": "i",
        "slurm__extra": {"comment": "it's mine", "nodelist": "node[1-2]", "mail-type": "END", "contiguous": True, "array": "0-3", "wckey": None},
        "slurm__array_limit": 2, "after": [{"job": "1234"}, {"job": "77", "on": "end"}], "launch__args": ["--text", "a b\n$x 'y' \"z\""],
        "launch__env": {"TEXT": "naïve 日本語"}, "checkpoint__resume": "/shared/old/checkpoint-5", "launch__restarts": 2,
    }),
    "hosts": ("hosts", TRANSFORMERS | {"resources__hosts": ["10.1.1.1", "10.1.1.2"], "launch__secrets": ["HF_TOKEN"],
                                       "launch__prepare": ["hf download x"], "launch__restarts": 1}),
    "hosts-deepspeed": ("hosts", {"resources__hosts": ["node-a", "node-b"], "launch__launcher": "deepspeed", "training__framework": "deepspeed"}),
    "local": ("local", {"resources__nodes": 1}),
}  # fmt: skip
