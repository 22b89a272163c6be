"""The spec: every field a user may write, with its meaning and unit. Nothing is computed here.

Short forms (``optimizer: adamw``, ``gpu: h100-80gb``) are turned into their long form before validation, so that
every other module sees one shape. Defaults here are the contract's; ``None`` means unset, and what fills it is
decided in ``jobgen.effective``.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from jobgen.spec.units import parse_count, parse_duration, parse_size

Size = Annotated[
    int, BeforeValidator(parse_size), WithJsonSchema({"type": "string", "examples": ["960GB", "894GiB", "80 GiB"]})
]
"""Bytes."""
Duration = Annotated[
    int, BeforeValidator(parse_duration), WithJsonSchema({"type": "string", "examples": ["24h", "1d 2h", "1-00:00:00"]})
]
"""Seconds."""
Count = Annotated[
    int,
    BeforeValidator(parse_count),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}], "examples": ["1e9", "0.96B", "200k"]}),
]
"""A positive whole number."""
PositiveInt = Annotated[int, Field(ge=1, le=2**40)]
"""A positive whole number without suffixes."""

Objective = Literal["pretrain", "sft", "reward", "dpo", "kto", "orpo", "grpo", "ppo"]
Method = Literal["full", "lora", "qlora"]
Framework = Literal[
    "custom", "transformers", "trl", "accelerate", "deepspeed", "llama-factory", "axolotl", "unsloth", "fsdp-qlora",
    "torchtune", "torchtitan", "megatron-lm", "megatron-deepspeed", "nemo", "ms-swift", "litgpt", "verl",
]  # fmt: skip
Precision = Literal["bf16", "fp16", "fp32", "bf16_pure", "fp8"]
Dtype = Literal["fp32", "bf16", "fp16", "fp8"]
OptimizerName = Literal[
    "adamw", "adamw_8bit", "adamw_4bit", "paged_adamw", "paged_adamw_8bit", "adafactor", "sgd", "lion", "muon",
    "lion_8bit", "paged_lion_8bit", "adagrad", "rmsprop", "lomo", "adalomo", "galore_adamw", "galore_adamw_8bit",
    "apollo_adamw", "schedule_free_adamw",
]  # fmt: skip
Attention = Literal["eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex"]
Sharding = Literal["none", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"]
OffloadTarget = Literal["none", "cpu", "nvme"]
Target = Literal["slurm", "k8s", "trainjob", "jobset", "hosts", "local"]
QuantizationType = Literal["nf4", "fp4", "int8", "gptq-int4", "gptq-int8", "mxfp4", "nvfp4"]
LauncherName = Literal["torchrun", "accelerate", "deepspeed", "srun", "python"]


class Model(BaseModel):
    """Base: unknown keys are refused, values keep their YAML type. Only Spec's validator is built (start-up)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=(), defer_build=True)


class _Named:
    """Turns a bare word into the map whose ``key`` it is."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __call__(self, value: Any) -> Any:
        return {self.key: value} if isinstance(value, str) else value


def _named(key: str) -> BeforeValidator:
    """A bare word is the long form's ``key``; `schema` says so too."""
    return BeforeValidator(_Named(key))


class ModelSection(Model):
    """What is trained."""

    name: str | None = Field(None, description="id in the shipped catalogue; case-insensitive, organisation optional when unique")
    config: str | None = Field(None, description="a Hugging Face config.json or a folder holding one; wins over the catalogue")
    path: str | None = Field(None, description="where the weights are loaded from: a hub id or a path [name]")
    revision: str | None = Field(None, description="hub revision of the weights")
    init: Literal["pretrained", "random"] = Field("pretrained", description="random: no weights are loaded, so no loading spike")


class Dtypes(Model):
    """Overrides of the data types that the framework would use."""

    weights: Dtype | None = Field(None, description="parameters that take part in forward and backward")
    gradients: Dtype | None = Field(None, description="gradients as they are stored")
    master: Literal["fp32", "bf16", "fp16", "none"] | None = Field(None, description="the optimizer's copy of the weights; none: it steps the weights themselves")
    moments: Literal["fp32", "bf16", "fp16", "fp8"] | None = Field(None, description="optimizer moments")
    reduce: Dtype | None = Field(None, description="gradient reduction between ranks")


class Optimizer(Model):
    """The optimizer; ``optimizer: adamw`` is short for ``{name: adamw}``."""

    name: OptimizerName = Field("adamw", description="the optimizer")
    in_backward: bool = Field(False, description="step each parameter during backward, so that gradients never exist together")


class ActivationCheckpointing(Model):
    """Which activations are recomputed; ``activation_checkpointing: full`` is short for ``{mode: full}``."""

    mode: Literal["none", "selective", "full"] = Field("none", description="full keeps only each layer's input")
    every: PositiveInt | None = Field(None, description="selective by layers: checkpoint every n-th layer")
    policy: Literal["ops", "layers", "core_attention"] | None = Field(None, description="what selective means [the framework's]")


class Lora(Model):
    """Low-rank adapters."""

    rank: PositiveInt = Field(16, description="rank r of the two factors")
    alpha: float = Field(32, gt=0, description="scale: alpha / rank")
    dropout: float | None = Field(None, ge=0, lt=1, description="dropout before the adapter [the framework's]")
    target_modules: str | list[str] = Field("all-linear", description="all-linear, or module names such as q_proj")
    modules_to_save: list[str] = Field([], description="modules trained and saved in full beside the adapter")
    use_dora: bool = Field(False, description="weight-decomposed adapters")


class Quantization(Model):
    """How the frozen base weights are stored."""

    type: QuantizationType = Field("nf4", description="storage format of the base weights")
    double_quant: bool = Field(True, description="quantise the block scales too (bitsandbytes)")
    storage_dtype: Literal["bf16", "fp16", "fp32", "uint8"] | None = Field(None, description="dtype of the packed storage; FSDP needs the training dtype")
    moe_experts: Literal["auto"] | bool = Field("auto", description="quantise routed experts [auto: what the framework and versions do]")


class Reference(Model):
    """The frozen model of preference objectives."""

    model: str | None = Field("policy", description="policy (a copy of the start), a model id or path, or null: none or precomputed")


class Rollout(Model):
    """Generation for grpo and ppo."""

    engine: Literal["vllm", "sglang", "hf"] = Field("vllm", description="the inference engine")
    mode: Literal["colocate", "server"] = Field("colocate", description="colocate: on the training GPUs; server: on nodes of its own")
    nodes: PositiveInt = Field(1, description="server: nodes taken out of resources.nodes")
    tensor: PositiveInt = Field(1, description="tensor parallel size of the engine")
    num_generations: PositiveInt = Field(8, description="completions per prompt")
    gpu_memory_utilization: float = Field(0.3, gt=0, le=1, description="fraction of the GPU the engine takes")


class Data(Model):
    """How much data; ``tokens``, or ``samples`` with ``tokens_per_sample``."""

    tokens: Count | None = Field(None, description="tokens of one epoch")
    samples: Count | None = Field(None, description="samples of one epoch")
    tokens_per_sample: Count | None = Field(None, description="mean tokens per sample [sequence_length]")
    epochs: float = Field(1, gt=0, le=10000, description="passes over the data")
    workers: int | None = Field(None, ge=0, le=1024, description="data-loader processes per rank [the framework's]")
    images_per_sample: int = Field(0, ge=0, le=100000, description="images per sample (multimodal)")
    tokens_per_image: int = Field(0, ge=0, le=1000000, description="tokens an image becomes")


class Evaluation(Model):
    """Evaluation during training."""

    every_steps: PositiveInt | None = Field(None, description="optimizer steps between evaluations")
    micro_batch_size: PositiveInt | None = Field(None, description="samples per rank and evaluation step [training's]")


class Training(Model):
    """How it is trained."""

    objective: Objective = Field("sft", description="what the loss is")
    method: Method = Field(description="full, lora, or qlora (lora over quantised weights)")
    framework: Framework = Field("custom", description="the program that trains")
    backend: Literal["transformers", "megatron"] | None = Field(None, description="engine of frameworks that have two (ms-swift)")
    config: str | None = Field(None, description="the framework's own configuration file; what the spec owns is laid over it")
    options: dict[str, Any] = Field({}, description="further keys of the framework, by the framework's names")
    versions: dict[str, str] = Field({}, description="library versions by PyPI name; also torch and cuda")
    precision: Precision = Field("bf16", description="bf16 and fp16 are mixed precision; bf16_pure has no fp32 copy")
    dtypes: Dtypes = Field(Dtypes.model_construct(), description="overrides of single data types")
    optimizer: Annotated[Optimizer, _named("name")] = Field(Optimizer.model_construct(), description="name, or {name, in_backward}")
    sequence_length: PositiveInt = Field(description="tokens: the length of packed data, the cap otherwise; before the context split")
    packing: Literal["none", "packed", "padding_free"] = Field("none", description="how samples fill a sequence")
    micro_batch_size: PositiveInt = Field(1, description="samples per data-parallel rank and micro-step")
    gradient_accumulation_steps: PositiveInt | None = Field(None, description="micro-steps per optimizer step; a pipeline's microbatches [1]")
    global_batch_size: PositiveInt | None = Field(None, description="samples per optimizer step over all ranks")
    activation_checkpointing: Annotated[ActivationCheckpointing, _named("mode")] = Field(ActivationCheckpointing.model_construct(), description="none, selective, full, or {mode, every, policy}")
    attention: Attention | None = Field(None, description="attention kernel [the framework's]")
    loss: Literal["standard", "liger", "chunked", "vocab_parallel"] = Field("standard", description="how logits and cross entropy are computed")
    compile: bool = Field(False, description="torch.compile")
    freeze: list[Literal["vision_tower", "audio_tower", "projector", "language_model"]] = Field(
        [], description="parts of a multimodal model that get no gradient"
    )
    loading: Literal["auto", "every_rank", "rank0_broadcast", "sharded"] = Field("auto", description="how weights reach the ranks, for custom programs")
    lora: Lora = Field(Lora.model_construct(), description="adapters of lora and qlora")
    quantization: Quantization | None = Field(None, description="quantised base weights [nf4 for qlora]")
    reference: Reference | None = Field(None, description="reference model of preference objectives [policy]")
    rollout: Rollout | None = Field(None, description="generation engine of grpo and ppo")
    max_steps: Count | None = Field(None, description="optimizer steps; exactly one of max_steps, data.tokens, data.samples")
    data: Data | None = Field(None, description="amount of data")
    evaluation: Evaluation | None = Field(None, description="evaluation during training")


class Parallelism(Model):
    """How the job is split. World = nodes x processes per node; data = world / (tensor x pipeline x context)."""

    sharding: Sharding = Field("none", description="none is DDP; zero1 is also Megatron's distributed optimizer")
    replicate: PositiveInt = Field(1, description="replicas of the shard group (HSDP; zero3: hpZ, MiCS)")
    tensor: PositiveInt = Field(1, description="tensor parallel size")
    sequence_parallel: Literal["auto"] | bool = Field("auto", description="split norms and dropout along the sequence over the tensor group")
    pipeline: PositiveInt = Field(1, description="pipeline stages")
    virtual_pipeline: PositiveInt = Field(1, description="model chunks per stage (interleaved schedule)")
    pipeline_layers: list[Annotated[int, Field(ge=0, le=100000)]] | None = Field(None, description="layers per stage when uneven")
    context: PositiveInt = Field(1, description="context parallel size: splits the sequence")
    context_method: Literal["ring", "ulysses"] = Field("ring", description="how attention crosses the context split")
    expert: PositiveInt = Field(1, description="expert parallel size; never multiplies the world")
    expert_tensor: PositiveInt = Field(1, description="tensor parallel size inside an expert")
    device_map: Literal["auto", "balanced", "sequential", "cpu"] | None = Field(None, description="one process lays whole layers over several GPUs (transformers device_map)")


class Offload(Model):
    """What leaves the GPU."""

    optimizer: OffloadTarget = Field("none", description="optimizer states and step")
    parameters: OffloadTarget = Field("none", description="parameters between uses")
    activations: Literal["none", "cpu"] = Field("none", description="saved activations")
    pin_memory: bool = Field(True, description="page-locked host buffers")
    nvme_path: str | None = Field(None, description="folder on a local NVMe disk")


class Gpu(Model):
    """``gpu: a100-80gb`` is short for ``{name: a100-80gb}``."""

    name: str = Field(description="catalogue name; an unknown name is fine when memory is given")
    memory: Size | None = Field(None, description="memory of one GPU")


class Resources(Model):
    """What the job asks for."""

    nodes: PositiveInt = Field(1, description="nodes")
    gpus_per_node: PositiveInt = Field(description="GPUs on each node")
    gpu: Annotated[Gpu, _named("name")] = Field(description="catalogue name, or {name, memory}")
    node_type: str | None = Field(None, description="cloud or DGX node of the catalogue: fills what is unset, bounds what is set")
    exclusive: Literal["auto"] | bool = Field("auto", description="the whole node [auto: when all its GPUs are asked for]")
    memory_per_node: Size | None = Field(None, description="host memory the job asks for on each node")
    cpus_per_node: PositiveInt | None = Field(None, description="CPUs the job asks for on each node")
    local_disk_per_node: Size | None = Field(None, description="node-local disk the job may fill")
    hosts: list[str] = Field([], description="bare machines for target hosts; the first is the master")
    fabric: str | None = Field(None, description="network between nodes: a shipped profile or a file")


class Checkpoint(Model):
    """What is saved, when and where."""

    directory: str | None = Field(None, description="folder on storage that all nodes share; required by render")
    every_steps: PositiveInt | None = Field(None, description="optimizer steps between saves")
    every_minutes: float | None = Field(None, gt=0, le=1e6, description="minutes between saves")
    every_epochs: float | None = Field(None, gt=0, le=1e6, description="epochs between saves")
    keep: PositiveInt | None = Field(None, description="newest checkpoints kept; unset keeps all")
    content: Literal["sharded", "full", "adapter_only"] | None = Field(None, description="layout [the framework's]")
    optimizer_state: bool = Field(True, description="save optimizer state, without which training cannot resume exactly")
    async_: bool = Field(False, alias="async", description="save from a host copy while training goes on")
    resume: str = Field("auto", description="auto, never, or the path of a checkpoint")
    storage: Size | None = Field(None, description="space that checkpoints may take [the volume's size]")


class Python(Model):
    """The Python environment; one of the three."""

    venv: str | None = Field(None, description="folder of a virtual environment")
    conda: str | None = Field(None, description="conda environment, by name or path")
    uv: str | None = Field(None, description="uv project")


class Stage(Model):
    """A copy that every node makes before training."""

    from_: str = Field(alias="from", description="source path")
    to: str = Field(description="destination path")


class Code(Model):
    """Small files shipped with the job."""

    files: list[str] = Field(description="files beside the spec")


class Launch(Model):
    """How the program starts on every node."""

    launcher: LauncherName | None = Field(None, description="what starts the ranks [the framework's]; python: one process that sees all GPUs")
    processes_per_node: PositiveInt | None = Field(None, description="ranks per node [gpus_per_node; 1 for python]")
    entrypoint: str | None = Field(None, description="script")
    module: str | None = Field(None, description="python module instead of a script")
    command: list[str] | None = Field(None, description="whole command of a framework that starts torchrun itself; {config} stands for its file")
    args: list[str] = Field([], description="arguments, passed as they are")
    env: dict[str, str] = Field({}, description="environment of the program")
    secrets: list[str] = Field([], description="names of secret variables, never their values")
    python: Python | None = Field(None, description="python environment")
    setup: list[str] = Field([], description="shell lines on each node's host, before the container (Slurm)")
    prepare: list[str] = Field([], description="shell lines once per attempt, on the first node")
    stage: list[Stage] = Field([], description="copies to node-local disk, on every node")
    finish: list[str] = Field([], description="shell lines once, after success only")
    image: str | None = Field(None, description="container image")
    working_directory: str | None = Field(None, description="folder the program starts in")
    code: str | Code = Field("image", description="image, a mounted path, or {files: [...]}")
    time_limit: Duration | None = Field(None, description="limit of one attempt")
    restarts: int = Field(0, ge=0, le=1000, description="requeues or restarts at most")


class CreateClaim(Model):
    """A claim that jobgen makes."""

    size: Size = Field(description="requested storage")
    storage_class: str | None = Field(None, description="StorageClass [the cluster's default]")
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"] = Field("ReadWriteMany", description="several nodes need ReadWriteMany")


class Volume(Model):
    """Something mounted into the job."""

    mount: str = Field(description="absolute path inside the job")
    claim: str | None = Field(None, description="PersistentVolumeClaim")
    create: CreateClaim | None = Field(None, description="make the claim")
    path: str | None = Field(None, description="host path: bind mount on Slurm, hostPath on Kubernetes; beside a claim, for Slurm only")
    scratch: bool = Field(False, description="node-local space that does not outlive the job")
    read_only: bool = Field(False, description="mounted read-only")


class Slurm(Model):
    """Slurm's own settings."""

    partition: str | None = Field(None, description="partition")
    account: str | None = Field(None, description="account")
    qos: str | None = Field(None, description="QOS")
    constraint: str | None = Field(None, description="node features")
    reservation: str | None = Field(None, description="reservation")
    container: Literal["none", "pyxis", "apptainer"] = Field("none", description="how launch.image runs")
    requeue: Literal["auto"] | bool = Field("auto", description="requeue after preemption, node failure and time limit [auto: when restarts > 0]")
    signal_before: Duration = Field(180, description="lead of the signal before the time limit")
    signal: Literal["USR1", "USR2", "TERM"] = Field("USR1", description="signal sent ahead of the time limit; the program hears it on every rank (Slurm). TERM ends launchers too: torchrun gives its ranks 30 s")
    gpu_option: Literal["gpus_per_node", "gres"] = Field("gpus_per_node", description="how GPUs are asked for")
    srun_args: list[str] = Field([], description="further srun options")
    master_addr_suffix: str = Field("", description="appended to the first host's name (some sites route the fabric by another name)")
    array_limit: PositiveInt | None = Field(None, description="array members at once")
    extra: dict[str, str | int | bool | None] = Field({}, description="further sbatch options, by their long names")
    output: str | None = Field(None, description="folder of the logs [logs beside the submission]")


class Elastic(Model):
    """Elastic bounds."""

    min_nodes: PositiveInt = Field(description="fewest nodes")
    max_nodes: PositiveInt = Field(description="most nodes")


class Kubernetes(Model):
    """Kubernetes' own settings."""

    namespace: str | None = Field(None, description="namespace [the context's]")
    context: str | None = Field(None, description="kubeconfig context")
    queue: str | None = Field(None, description="queue of the scheduler")
    priority_class: str | None = Field(None, description="PriorityClass")
    scheduler: Literal["kueue", "volcano", "coscheduling", "kai"] | None = Field(None, description="who queues and gangs")
    node_selector: dict[str, str] = Field({}, description="node labels")
    tolerations: list[dict[str, Any]] = Field([], description="tolerations as Kubernetes writes them")
    labels: dict[str, str] = Field({}, description="labels of the job and its pods")
    annotations: dict[str, str] = Field({}, description="annotations of the pods")
    service_account: str | None = Field(None, description="ServiceAccount")
    image_pull_secrets: list[str] = Field([], description="image pull Secrets")
    secret: str | None = Field(None, description="the Secret that holds launch.secrets")
    shm_size: Literal["auto"] | Size = Field("auto", description="/dev/shm")
    ttl: Duration | None = Field(None, description="deletion after the end")
    extra_resources: dict[str, str | int] = Field({}, description="further extended resources per pod")
    security_context: dict[str, Any] = Field({}, description="container securityContext")
    elastic: Elastic | None = Field(None, description="elastic bounds")
    restart: Literal["auto", "gang", "pod", "never"] = Field("auto", description="what restarts when a pod fails")


class Sweep(Model):
    """Several jobs from one spec."""

    grid: dict[str, list[Any]] = Field({}, description="all combinations")
    zipped: dict[str, list[Any]] = Field({}, alias="zip", description="values taken side by side")
    points: list[dict[str, Any]] = Field([], alias="list", description="points written out")
    max_parallel: PositiveInt | None = Field(None, description="points that run at once")


class After(Model):
    """A dependency on another job."""

    job: str = Field(description="handle of a submitted job")
    on: Literal["success", "end", "failure", "start"] = Field("success", description="what it waits for")


class Plan(Model):
    """What `jobgen plan` may change."""

    fix: list[str] = Field([], description="paths that stay")
    vary: dict[str, list[Any]] = Field({}, description="values to try by path")
    max_nodes: PositiveInt | None = Field(None, description="largest number of nodes")


RuleCode = Annotated[str, Field(pattern=r"^JG[0-9]{3}$")]


class Ignore(Model):
    """A finding that is accepted; ``JG305`` is short for ``{code: JG305}``."""

    code: RuleCode = Field(description="code of the rule")
    reason: str | None = Field(None, description="why; shown in reports")


class Spec(Model):
    """One job."""

    name: str = Field(min_length=1, max_length=200, description="Slurm job name and Kubernetes object name")
    target: Target | None = Field(None, description="default of --target")
    cluster: str | None = Field(None, description="profile: ./clusters/NAME.yaml or in the user's config folder")
    model: ModelSection = Field(description="what is trained")
    training: Training = Field(description="how it is trained")
    parallelism: Parallelism = Field(Parallelism.model_construct(), description="how it is split")
    offload: Offload = Field(Offload.model_construct(), description="what leaves the GPU")
    resources: Resources = Field(description="what the job asks for")
    checkpoint: Checkpoint = Field(Checkpoint.model_construct(), description="what is saved")
    launch: Launch = Field(Launch.model_construct(), description="how it starts")
    volumes: list[Volume] = Field([], description="what is mounted")
    slurm: Slurm = Field(Slurm.model_construct(), description="Slurm's own settings")
    kubernetes: Kubernetes = Field(Kubernetes.model_construct(), description="Kubernetes' own settings")
    sweep: Sweep | None = Field(None, description="several jobs from one spec")
    after: list[After] = Field([], description="dependencies")
    plan: Plan | None = Field(None, description="bounds of jobgen plan")
    ignore: list[Annotated[Ignore, _named("code")]] = Field([], description="accepted findings")
