"""Wrong values and unknown keys: one message for each place, in plain words."""

import pytest

CASES = [
    ("foo: 1", "foo", "no `foo` at the top level", "fields here"),
    ("micro_batch_size: 1", "micro_batch_size", "no `micro_batch_size`", "belongs under training"),
    ("resource: {}", "resource", "no `resource`", "did you mean resources?"),
    ("parallelism: {tp: 2}", "parallelism.tp", "no `tp`", "parallelism.tensor"),
    ("parallelism: {sharding: zero4}", "parallelism.sharding", "not a value", "did you mean zero3?"),
    ("offload: {optimizer: disk}", "offload.optimizer", "not a value", "none, cpu, nvme"),
    ("launch: {env: {A: 1}}", "launch.env.A", "the number 1", 'quote it: "1"'),
    ("launch: {env: {A: 1.10}}", "launch.env.A", "1.10", 'quote it: "1.10"'),
    ("launch: {env: {A: true}}", "launch.env.A", "a boolean", 'quote it: "true"'),
    ("launch: {args: --flag}", "launch.args", "the text", '["--flag"]'),
    ("launch: {args: [1]}", "launch.args.0", "the number 1", 'quote it: "1"'),
    ("launch: {restarts: '3'}", "launch.restarts", "the text", "3 without quotes"),
    ("launch: {restarts: 2.0}", "launch.restarts", "2.0", "write 2"),
    ("launch: {restarts: -1}", "launch.restarts", "out of range", "at least 0"),
    ("launch: {time_limit: 90}", "launch.time_limit", "without a unit", "24h"),
    ("launch: {time_limit: 00:30}", "launch.time_limit", "two fields", "24h"),
    ("launch: {code: {}}", "launch.code.files", "required", "files:"),
    ("launch: [x]", "launch", "a list", "a map of launcher"),
    ("launch:", "launch", "empty", "remove the key"),
    ("kubernetes: {shm_size: 3}", "kubernetes.shm_size", "without a unit", "GiB"),
    ("checkpoint: {async: maybe}", "checkpoint.async", "the text", "true or false"),
    ("checkpoint: {every_minutes: 0}", "checkpoint.every_minutes", "out of range", "above 0"),
    ("ignore: [X]", "ignore.0", "right form", "JG305"),
    ("ignore: [{reason: x}]", "ignore.0.code", "required", "code:"),
    ("volumes: [{path: /x}]", "volumes.0.mount", "required", "mount:"),
    ("volumes: [{mount: /x, create: {}, claim: a}]", "volumes.0.create.size", "required", "GiB"),
    ("volumes: {mount: /x}", "volumes", "a map", "a list of"),
    ("slurm: {extra: {a: [1]}}", "slurm.extra.a", "a list", ""),
    ("launch: {env: {A: [x]}}", "launch.env.A", "a list", "single value"),
    ("parallelism: {sequence_parallel: 'yes'}", "parallelism.sequence_parallel", "not a value", "auto, true or false"),
    ("slurm: {requeue: 3}", "slurm.requeue", "the number 3", "auto, true or false"),
    ("launch: {stage: [{form: /a, to: /b}]}", "launch.stage.0.form", "no `form`", "did you mean from?"),
    ("name2: x", "name2", "no `name2`", "did you mean name?"),
]


@pytest.mark.parametrize(("line", "path", "words", "fix"), CASES)
def test_a_wrong_line_is_explained_where_it_stands(line, path, words, fix, base, refuse):
    (problem,) = refuse(base + line + "\n")
    assert (problem.path, problem.line, problem.code) == (path, 10, "JG002")
    assert words in problem.message and fix in problem.fix


@pytest.mark.parametrize("path", ["name", "model", "training", "resources", "training.method", "training.sequence_length",
                                  "resources.gpus_per_node", "resources.gpu"])  # fmt: skip
def test_what_is_required_is_asked_for_with_an_example(path, base, refuse):
    from jobgen.spec.edit import DELETE, edit_text

    (problem,) = refuse(edit_text(base, {path: DELETE}))
    assert problem.path == path and "required" in problem.message and path.rpartition(".")[2] in problem.fix


def test_a_short_form_is_named_as_it_was_written(base, refuse):
    (problem,) = refuse(base.replace("  method", "  optimizer: adamv\n  method"))
    assert problem.path == "training.optimizer" and "did you mean adamw?" in problem.fix


@pytest.mark.parametrize(("line", "path", "words", "fix"), [
    ("freeze: [visual]", "training.freeze.0", "not a value of `freeze`", "vision_tower"),
    ("freeze: projector", "training.freeze", "the text", '["projector"]'),
    ("activation_checkpointing: true", "training.activation_checkpointing", "a boolean", "one of none, selective, full, or a map of mode"),
])  # fmt: skip
def test_a_wrong_line_of_training_is_explained(line, path, words, fix, base, refuse):
    (problem,) = refuse(base.replace("  method", f"  {line}\n  method"))
    assert problem.path == path
    assert words in problem.message and fix in problem.fix


def test_every_problem_is_reported_at_once(base, refuse):
    found = refuse(base + "foo: 1\noffload: {bar: 2}\nlaunch: {restarts: x, time_limit: 1:30}\nslurm: {account: 0123}\n")
    assert [p.path for p in found] == ["foo", "offload.bar", "launch.restarts", "launch.time_limit", "slurm.account"]


def test_messages_have_no_jargon(base, refuse):
    for line, *_ in CASES:
        text = " ".join(str(p) for p in refuse(base + line + "\n"))
        for word in ("Input should", "pydantic", "literal", "valid integer", "extra_forbidden", "Field required", "dict", "Value error"):
            assert word not in text
