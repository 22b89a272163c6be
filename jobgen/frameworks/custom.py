"""Any program of the user's own: jobgen writes no configuration but the engines' files, which ``{config}`` names."""

from __future__ import annotations

from pathlib import PurePath

from jobgen.frameworks import engines, formats
from jobgen.frameworks.config import Config
from jobgen.frameworks.table import CheckpointLayout, Framework
from jobgen.frameworks.view import View
from jobgen.frameworks.write import Configured, asks_for_config

TABLE = Framework(
    name="custom",
    library="",
    launcher="torchrun",
    starts_torchrun=False,
    command=(),
    sharding=frozenset({"none", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"}),
    attention="sdpa",
    options=(),
    checkpoint=CheckpointLayout(None, None),
    source="the spec: nothing is known of the program but what it says",
)


def configure(view: View, config: Config) -> Configured:
    """The user's file with the options over it, and the engine's files, which the program must read.

    ``{config}`` is the user's file, else the DeepSpeed JSON.
    """
    engine = engines.configure(view, hf=False)
    if config.file or view.spec.training.options:
        name = PurePath(config.file).name or "config.yaml"
        values = formats.merged(config.values, view.spec.training.options)
        engine = engine._replace(files=(*engine.files, (name, formats.dump(name, values))))
    elif view.engine == "deepspeed":
        name = engines.DEEPSPEED_FILE
    else:
        return engine
    if not asks_for_config(view.spec) and not (name == engines.DEEPSPEED_FILE and view.launcher == "accelerate"):
        view.note(f"the program must read {name}: give it the path by {{config}} in launch.args")
    return engine._replace(config_file=name)
